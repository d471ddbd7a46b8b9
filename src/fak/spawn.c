/* spawn.c - see spawn.h. Input and output are served together, so neither pipe can fill up and
 * hang. */
#include "fak/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static pid_t start(char *const argv[], int in, int out)
{
    pid_t pid = -1;
    posix_spawn_file_actions_t fa;
    if (posix_spawn_file_actions_init(&fa) != 0) return -1;
    posix_spawn_file_actions_adddup2(&fa, in, 0);
    posix_spawn_file_actions_adddup2(&fa, out, 1);
    posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", O_WRONLY, 0);
    if (posix_spawnp(&pid, argv[0], &fa, NULL, argv, environ) != 0) pid = -1;
    posix_spawn_file_actions_destroy(&fa);
    return pid;
}

/* Feed *to and drain from until the output ends. */
static bool serve(int *to, int from, const char *input, size_t left, gem_bytes *out, size_t limit)
{
    char buf[16384];
    for (;;) {
        if (*to >= 0 && left == 0) {
            close(*to);
            *to = -1;
        }
        struct pollfd p[2] = {{.fd = from, .events = POLLIN}, {.fd = *to, .events = POLLOUT}};
        if (poll(p, 2, -1) < 0 && errno != EINTR) return false;
        if (p[1].revents) {
            ssize_t n = write(*to, input, left);
            if (n > 0) {
                input += n;
                left -= (size_t)n;
            } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
                left = 0; /* it does not read: its output may still be whole */
            }
        }
        if (p[0].revents) {
            ssize_t n = read(from, buf, sizeof(buf));
            if (n == 0) return true;
            if (n < 0 && errno != EINTR) return false;
            if (n > 0 && out->len + (size_t)n > limit) return false;
            if (n > 0) gem_bytes_put(out, buf, (size_t)n);
        }
    }
}

int fak_spawn(char *const argv[], const void *input, size_t input_len, gem_bytes *out, size_t limit)
{
    int in[2], back[2], status = -1;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    if (pipe2(in, O_CLOEXEC) != 0) return -1;
    if (pipe2(back, O_CLOEXEC) != 0) {
        close(in[0]);
        close(in[1]);
        return -1;
    }
    sigaction(SIGPIPE, &ignore, &before);
    pid_t pid = start(argv, in[0], back[1]);
    close(in[0]);
    close(back[1]);
    fcntl(in[1], F_SETFL, O_NONBLOCK);
    bool ok = pid > 0 && serve(&in[1], back[0], input, input_len, out, limit);
    if (in[1] >= 0) close(in[1]);
    close(back[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    sigaction(SIGPIPE, &before, NULL);
    return ok && !out->failed && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
