/* judge.h - documents going in, named checks coming out. An analyzer reads files with ev_doc, asks
 * questions with ev_check and finishes with a verdict that holds only when every check held. What
 * is missing, of another type, or not finite fails the check that needed it: nothing here has a
 * default that lets a document pass. Pure functions of files: no clock, no environment, no engine.
 */
#ifndef GEM_EVIDENCE_JUDGE_H
#define GEM_EVIDENCE_JUDGE_H

#include "base/json_reader.h"

enum { EV_MAX_DOCUMENT = 64 << 20 };

/* ---- one input ---- */
typedef struct ev_doc {
    char *path;       /* owned; as given */
    const char *name; /* its last part: what reports say, so that a moved folder reads the same */
    char sha256[65];  /* of the bytes on disk */
    size_t size;
    gem_json_doc *json;   /* owned */
    const gem_json *root; /* borrowed from json */
} ev_doc;

/* Read a whole JSON document. GEM_E_IO: it cannot be read; GEM_E_FORMAT: it is not strict JSON. */
gem_status ev_doc_load(ev_doc *d, const char *path, gem_error *err);
void ev_doc_free(ev_doc *d);

/* Value at a dotted path ("rows.0.samples_ns"; a number is an index); NULL when there is none. */
const gem_json *ev_at(const gem_json *v, const char *path);
/* The finite number there; NAN otherwise. Comparisons are written so that NAN fails them. */
double ev_number(const gem_json *v, const char *path);
/* The text there; "" otherwise. */
const char *ev_text(const gem_json *v, const char *path);
bool ev_is_true(const gem_json *v, const char *path);
bool ev_is_false(const gem_json *v, const char *path);
bool ev_is_digest(const char *s); /* 64 lower-case hexadecimal digits */

/* ---- samples ---- */
typedef struct ev_series {
    double *x; /* owned */
    size_t n;
} ev_series;
/* A list of finite numbers above zero. False when it is none; *s is then empty. */
bool ev_series_read(ev_series *s, const gem_json *list);
void ev_series_free(ev_series *s);

/* ---- the judgement ---- */
typedef struct ev_judge {
    gem_json_doc *json; /* owned: the report that is being written */
    gem_json *root, *inputs, *checks;
    size_t n_checks, n_failed;
    gem_bytes refusals; /* one line a failed check, for people */
    const char *about;  /* borrowed; put before what is observed: "sample 2"; NULL: nothing */
} ev_judge;

/* Start a report: {"schema", "verdict", "inputs", "checks"}. False when out of memory. */
bool ev_judge_init(ev_judge *j, const char *schema);
void ev_judge_free(ev_judge *j);
/* Name a document as an input, with its digest; role: "baseline", "profile", ... */
void ev_judge_input(ev_judge *j, const char *role, const ev_doc *d);
/* Record one check: the rule's name, what it requires, what was seen. Returns `holds`. */
bool ev_check(ev_judge *j, bool holds, const char *rule, const char *required, const char *fmt, ...)
    GEM_PRINTF(5, 6);
/* The document must be of this schema. */
bool ev_check_schema(ev_judge *j, const ev_doc *d, const char *schema);
/* Both documents must have the member and hold the same value there. Rule "controls". */
bool ev_check_same(ev_judge *j, const ev_doc *a, const ev_doc *b, const char *path);
/* Number, text or truth at `path`, named in a failed check "field" when it is not there. */
double ev_need_number(ev_judge *j, const ev_doc *d, const char *path);
const char *ev_need_text(ev_judge *j, const ev_doc *d, const char *path);
/* At least `least` samples at `path`; rule "samples". The caller frees *s in every case. */
bool ev_need_series(ev_judge *j, const ev_doc *d, const char *path, size_t least, ev_series *s);
/* The number at `path` must be exactly this. */
bool ev_check_equals(ev_judge *j, const ev_doc *d, const char *rule, const char *path, double want);
bool ev_check_text(ev_judge *j, const ev_doc *d, const char *rule, const char *path,
                   const char *want);
/* True while nothing failed and something was checked. */
bool ev_holds(const ev_judge *j);
/* Write the verdict word (`yes` when it holds, else "refuse") and "failed_rules"; again after
 * further checks. */
void ev_judge_finish(ev_judge *j, const char *yes);

/* The options a report was made with, so that it can be made again. */
void ev_judge_options(ev_judge *j, char *const *options, size_t n);

/* {"n","mean","median","min","max","sd","cv_percent","half_run_drift_percent","ramp",
 * "discontinuity","samples"} as member `name` of `parent`. */
void ev_put_figures(ev_judge *j, gem_json *parent, const char *name, const ev_series *s);
void ev_put_samples(ev_judge *j, gem_json *parent, const char *name, const double *x, size_t n);

#endif
