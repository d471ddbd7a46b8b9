/* gem_tether.c - `gem-tether --starter PID -- COMMAND...`: a program that cannot outlive whoever
 * started it. Gates start their servers with it, so that a gate that is killed leaves none behind.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum { POLL_NS = 100000000, GRACE_POLLS = 50 }; /* look ten times a second; five seconds to end */

static const char help[] =
    "usage: gem-tether --starter PID -- COMMAND [ARGUMENT...]\n"
    "\n"
    "run COMMAND; end it when PID, the process that starts gem-tether, is gone\n"
    "\n"
    "SIGTERM, SIGINT and SIGHUP reach COMMAND as SIGTERM, a second one as SIGKILL; so does the end "
    "of\n"
    "the starter, with five seconds between both. Exit: that of COMMAND (128 and the signal that\n"
    "ended it); 2 usage; 3 it cannot be run.\n";

static volatile sig_atomic_t asked;

static void on_signal(int sig)
{
    if (sig != SIGCHLD && asked < 2) asked++;
}

static void handle(int sig)
{
    struct sigaction a = {.sa_handler = on_signal}, now;
    /* what the starter has switched off stays off */
    if (sigaction(sig, NULL, &now) == 0 && now.sa_handler == SIG_IGN && sig != SIGCHLD) return;
    sigaction(sig, &a, NULL);
}

static void run(char **argv, pid_t tether)
{
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() != tether) _exit(3);
    execvp(argv[0], argv);
    fprintf(stderr, "gem-tether: %s: %s\n", argv[0], strerror(errno));
    _exit(3);
}

int main(int argc, char **argv)
{
    if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        fputs(help, stdout);
        return 0;
    }
    if (argc < 5 || strcmp(argv[1], "--starter") != 0 || atol(argv[2]) < 1 ||
        strcmp(argv[3], "--") != 0) {
        fputs("gem-tether: --starter PID -- COMMAND is needed; see gem-tether --help\n", stderr);
        return 2;
    }
    pid_t starter = (pid_t)atol(argv[2]), self = getpid();
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* at once; elsewhere the loop below sees it */
#endif
    if (getppid() != starter) return 3; /* gone before we were here */
    handle(SIGTERM);
    handle(SIGINT);
    handle(SIGHUP);
    handle(SIGCHLD);
    pid_t child = fork();
    if (child == 0) run(argv + 4, self);
    if (child < 0) {
        perror("gem-tether: fork");
        return 3;
    }
    int sent = 0, polls = 0, status;
    for (;;) {
        pid_t got = waitpid(child, &status, WNOHANG);
        if (got == child) break;
        if (got < 0 && errno != EINTR) return 3;
        if (getppid() != starter && asked == 0) asked = 1;
        if (sent && getppid() != starter && ++polls > GRACE_POLLS) asked = 2;
        if (sent < asked) kill(child, (sent = asked) == 1 ? SIGTERM : SIGKILL);
        nanosleep(&(struct timespec){0, POLL_NS}, NULL); /* a signal ends it early */
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
