/* manifest.h - MANIFEST.sha256 of a retained folder: the digest of every file below it, written
 * last. The form is that of sha256sum, so that a reader needs no gem to check it; reading is
 * stricter, so that no byte of the manifest itself can change unseen. */
#ifndef GEM_EVIDENCE_MANIFEST_H
#define GEM_EVIDENCE_MANIFEST_H

#include "evidence/judge.h"

#define EV_MANIFEST "MANIFEST.sha256"

typedef struct ev_entry {
    char *name;      /* owned; relative to the folder, parts split by '/' */
    char sha256[65]; /* of the file as it is now; "" when it is no regular file */
    bool regular;
} ev_entry;

typedef struct ev_folder {
    ev_entry *v; /* owned, sorted by name as bytes; the manifest itself is left out */
    size_t n, cap;
} ev_folder;

/* Every file below `dir`, digests included. GEM_E_IO; GEM_E_RANGE beyond 100,000 files or 16
 * levels. */
gem_status ev_folder_read(ev_folder *f, const char *dir, gem_error *err);
void ev_folder_free(ev_folder *f);
/* Entry by name or digest; NULL. */
const ev_entry *ev_folder_find(const ev_folder *f, const char *name);

/* Write DIR/MANIFEST.sha256. GEM_E_FORMAT: the folder cannot be sealed: it is sealed already, holds
 * something that is no regular file, a name with a control character or backslash, or a file that
 * was left half written (.part, .tmp). */
gem_status ev_manifest_write(const char *dir, gem_error *err);

/* Judge a folder by its manifest. Rules: manifest (there, and of the strict form: lower-case
 * digest, two blanks, name; sorted, each once, LF at the end), digest (each listed file has it),
 * unlisted (nothing else is there, but for the file `except`, which was made behind the manifest;
 * NULL: no exception). `f` is what ev_folder_read gave. */
void ev_judge_manifest(ev_judge *j, const char *dir, const ev_folder *f, const char *except);

#endif
