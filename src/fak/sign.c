/* sign.c - calling ssh-keygen. What is signed is one line: the canonical digest and LF. */
#include "fak/sign.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Run argv with the message on its standard input; its output (at most limit bytes) into out. */
static int run(char *const argv[], const char *message, gem_bytes *out, size_t limit)
{
    int in[2], back[2], status = -1;
    pid_t pid = -1;
    posix_spawn_file_actions_t fa;
    if (pipe2(in, O_CLOEXEC) != 0) return -1;
    if (pipe2(back, O_CLOEXEC) != 0) {
        close(in[0]);
        close(in[1]);
        return -1;
    }
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, in[0], 0);
    posix_spawn_file_actions_adddup2(&fa, back[1], 1);
    posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", O_WRONLY, 0);
    int failed = posix_spawnp(&pid, argv[0], &fa, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&fa);
    close(in[0]);
    close(back[1]);
    if (!failed) {
        /* the message is shorter than any pipe buffer; a child that died before reading is seen
         * below */
        ssize_t sent = write(in[1], message, strlen(message));
        (void)sent;
    }
    close(in[1]);
    char buf[4096];
    for (ssize_t n; (n = read(back[0], buf, sizeof(buf))) != 0;) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 || out->len + (size_t)n > limit) break;
        gem_bytes_put(out, buf, (size_t)n);
    }
    close(back[0]);
    if (failed) return -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool message_of(char message[FAK_DIGEST_SIZE + 1], const gem_json *root)
{
    if (!fak_digest_json(message, root)) return false;
    strcat(message, "\n");
    return true;
}

bool fak_sign(const char *path, const char *key, const gem_json *root, fak_findings *f)
{
    char message[FAK_DIGEST_SIZE + 1];
    gem_bytes sig = {0}, name = {0};
    gem_error err;
    char *const argv[] = {"ssh-keygen",       "-Y", "sign",      "-q", "-n",
                          FAK_SIGN_NAMESPACE, "-f", (char *)key, NULL};
    bool ok = false;
    gem_bytes_printf(&name, "%s.sig", path);
    if (!message_of(message, root) || name.failed) {
        f->failed = true;
    } else if (run(argv, message, &sig, 65536) != 0 || !sig.len || sig.failed) {
        fak_find(f, "NPX-001", NULL, "ssh-keygen could not sign with this key");
    } else {
        ok = gem_file_write_atomic(name.data, sig.data, sig.len, &err) == GEM_OK;
        if (!ok) fak_find(f, "NPI-002", NULL, "%s", err.text);
    }
    gem_bytes_free(&sig);
    gem_bytes_free(&name);
    return ok;
}

bool fak_verify_signature(const char *path, const char *allowed, const gem_json *root,
                          fak_findings *f)
{
    char message[FAK_DIGEST_SIZE + 1];
    gem_bytes who = {0}, name = {0}, none = {0};
    bool ok = false;
    gem_bytes_printf(&name, "%s.sig", path);
    if (!message_of(message, root) || name.failed) {
        f->failed = true;
        goto done;
    }
    char *const find[] = {"ssh-keygen", "-Y", "find-principals", "-s",
                          name.data,    "-f", (char *)allowed,   NULL};
    if (run(find, "", &who, 65536) != 0 || !who.len) {
        fak_find(f, "NPX-002", NULL, "no allowed signer made this signature");
        goto done;
    }
    who.data[strcspn(who.data, "\n")] = 0;
    char *const verify[] = {
        "ssh-keygen", "-Y", "verify",  "-q", "-n", FAK_SIGN_NAMESPACE, "-f", (char *)allowed, "-I",
        who.data,     "-s", name.data, NULL};
    ok = run(verify, message, &none, 65536) == 0;
    if (!ok) fak_find(f, "NPX-002", NULL, "the signature does not belong to this document");
done:
    gem_bytes_free(&who);
    gem_bytes_free(&name);
    gem_bytes_free(&none);
    return ok;
}
