/* doc.h - reading a document from a file or standard input, and small accessors over checked trees.
 * All input and output of the room goes through fak_io, so the modes can be run on buffers. */
#ifndef GEM_FAK_DOC_H
#define GEM_FAK_DOC_H

#include "fak/shape.h"

enum { FAK_MAX_DEPTH = 64, FAK_MAX_INPUT = 16 << 20, FAK_MAX_ATTESTATION = 1 << 20 };

typedef struct fak_io fak_io;
struct fak_io {
    gem_bytes out, err; /* what goes to standard output and standard error */
    /* Read a file ("-": standard input) of at most limit bytes: GEM_OK, GEM_E_IO or GEM_E_RANGE. */
    gem_status (*read)(fak_io *io, const char *path, size_t limit, gem_bytes *data, gem_error *err);
    /* Write a file of mode 0600 through a temporary name in its folder. */
    gem_status (*write)(fak_io *io, const char *path, const void *data, size_t len, gem_error *err);
    /* Are the two names one file? */
    bool (*same)(fak_io *io, const char *a, const char *b);
    void *user;
};
void fak_io_system(fak_io *io); /* the real file system */
void fak_io_free(fak_io *io);

typedef struct fak_doc {
    gem_bytes raw;
    gem_json_doc *json;
    const gem_json *root; /* NULL: not read, or findings were added */
} fak_doc;

/* Read, parse and shape-check. type NULL: parse only. Findings NPI and NPJ go to f; returns whether
 * the document decoded. The document is freed by fak_doc_free in every case. */
bool fak_doc_load(fak_doc *d, fak_io *io, fak_findings *f, const char *path, size_t limit,
                  const fak_type *type);
/* Parse a buffer instead of a file. */
bool fak_doc_parse(fak_doc *d, fak_findings *f, const char *data, size_t len, const fak_type *type);
void fak_doc_free(fak_doc *d);

/* Accessors for checked documents; a missing member gives "", 0 or false. */
const char *fak_str(const gem_json *obj, const char *name);
double fak_num(const gem_json *obj, const char *name);
int64_t fak_int(const gem_json *obj, const char *name);
bool fak_bool(const gem_json *obj, const char *name);
const gem_json *fak_list(const gem_json *obj, const char *name); /* first item, or NULL */
size_t fak_count(const gem_json *obj, const char *name);
bool fak_blank(const char *s); /* empty or only blanks */
bool fak_hex64(const char *s); /* 64 lowercase hexadecimal digits */

/* "sha256:" and the hex digest of bytes, or of the canonical form with `digest` blanked. */
enum { FAK_DIGEST_SIZE = 7 + 64 + 1 };
bool fak_digest_bytes(char out[FAK_DIGEST_SIZE], const void *data, size_t len);
bool fak_digest_json(char out[FAK_DIGEST_SIZE], const gem_json *v);

#endif
