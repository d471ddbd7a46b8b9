/* sign.c - calling ssh-keygen. What is signed is one line: the canonical digest and LF. */
#include "fak/sign.h"

#include "fak/spawn.h"

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
    } else if (fak_spawn(argv, message, strlen(message), &sig, 65536) != 0 || !sig.len ||
               sig.failed) {
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
    if (fak_spawn(find, "", 0, &who, 65536) != 0 || !who.len) {
        fak_find(f, "NPX-002", NULL, "no allowed signer made this signature");
        goto done;
    }
    who.data[strcspn(who.data, "\n")] = 0;
    char *const verify[] = {
        "ssh-keygen", "-Y", "verify",  "-q", "-n", FAK_SIGN_NAMESPACE, "-f", (char *)allowed, "-I",
        who.data,     "-s", name.data, NULL};
    ok = fak_spawn(verify, message, strlen(message), &none, 65536) == 0;
    if (!ok) fak_find(f, "NPX-002", NULL, "the signature does not belong to this document");
done:
    gem_bytes_free(&who);
    gem_bytes_free(&name);
    gem_bytes_free(&none);
    return ok;
}
