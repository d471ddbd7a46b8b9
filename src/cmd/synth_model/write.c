/* write.c - the runs of all tensors, made and written by several threads. Each takes the next run,
 * makes it in its own buffer of SYNTH_RUN_BYTES and writes it in place, so memory does not grow
 * with the file. */
#include "cmd/synth_model/synth.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct work {
    gem_gguf_writer *w;
    const synth_model *m;
    uint64_t *first_run; /* of each tensor, and behind the last one the number of all */
    _Atomic uint64_t next, done_bytes;
    atomic_bool stop;
    pthread_mutex_t lock; /* guards status, error and running */
    pthread_cond_t ended;
    int running;
    gem_status status;
    gem_error error;
} work;

static void fail_with(work *k, gem_status st, const gem_error *err)
{
    pthread_mutex_lock(&k->lock);
    if (k->status == GEM_OK) {
        k->status = st;
        k->error = *err;
    }
    pthread_mutex_unlock(&k->lock);
    k->stop = true;
}

/* The tensor that run number `run` of the file belongs to. */
static size_t tensor_of(const work *k, uint64_t run)
{
    size_t lo = 0, hi = k->m->n_tensors;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (k->first_run[mid] <= run)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* Make run number `i` of the file and write it. */
static gem_status write_run(work *k, uint64_t i, uint8_t *blocks, float *values, gem_error *err)
{
    size_t at = tensor_of(k, i);
    const synth_tensor *t = &k->m->tensors[at];
    const gem_dtype_info *info = gem_dtype_get((uint32_t)t->dtype);
    uint64_t run = i - k->first_run[at];
    if (k->m->sparse && t->fill == SYNTH_MATRIX)
        return run ? GEM_OK : gem_gguf_put_nothing(k->w, at, err);
    size_t bytes = synth_fill_run(t, k->m->seed, run, blocks);
    size_t first = (size_t)run * synth_run_blocks(t), each = info->block_bytes;
    const void *data = blocks;
    if (values) {
        size_t n = bytes / each * info->block_len;
        gem_dequantize_row(t->dtype, blocks, values, n);
        data = values;
        bytes = n * sizeof(*values);
        each = info->block_len * sizeof(*values);
    }
    k->done_bytes += bytes;
    return gem_gguf_put_at(k->w, at, first * each, data, bytes, err);
}

static void *worker(void *arg)
{
    work *k = arg;
    gem_error err;
    gem_status st = GEM_OK;
    uint64_t n_runs = k->first_run[k->m->n_tensors];
    /* no type takes less than half a byte for an element: values need at most 8 times the room */
    float *values = k->m->expand ? malloc(8 * (size_t)SYNTH_RUN_BYTES) : NULL;
    uint8_t *blocks = malloc(SYNTH_RUN_BYTES);
    if (!blocks || (k->m->expand && !values))
        st = gem_fail(&err, GEM_E_NOMEM, "no memory for the buffers of a thread");
    while (st == GEM_OK && !k->stop) {
        uint64_t i = k->next++;
        if (i >= n_runs) break;
        st = write_run(k, i, blocks, values, &err);
    }
    if (st != GEM_OK) fail_with(k, st, &err);
    free(values);
    free(blocks);
    pthread_mutex_lock(&k->lock);
    k->running--;
    pthread_cond_signal(&k->ended);
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

/* Until all workers have ended: report, and tell them to stop when that is asked for. */
static void watch(work *k, synth_progress progress, void *user)
{
    uint64_t total = gem_gguf_writer_file_bytes(k->w);
    pthread_mutex_lock(&k->lock);
    while (k->running > 0) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 200000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&k->ended, &k->lock, &until);
        if (progress && !progress(user, k->done_bytes, total) && k->status == GEM_OK) {
            k->stop = true;
            k->status = gem_fail(&k->error, GEM_E_CANCELLED, "stopped; nothing was written");
        }
    }
    pthread_mutex_unlock(&k->lock);
}

gem_status synth_write(gem_gguf_writer *w, const synth_model *m, int n_threads,
                       synth_progress progress, void *user, gem_error *err)
{
    gem_status st;
    work k = {.w = w, .m = m, .status = GEM_OK};
    if ((st = gem_gguf_writer_begin(w, err)) != GEM_OK) return st;
    k.first_run = malloc((m->n_tensors + 1) * sizeof(*k.first_run));
    pthread_t *threads = malloc((size_t)n_threads * sizeof(*threads));
    if (!k.first_run || !threads) {
        free(k.first_run);
        free(threads);
        return gem_fail(err, GEM_E_NOMEM, "no memory for %d threads", n_threads);
    }
    k.first_run[0] = 0;
    for (size_t i = 0; i < m->n_tensors; i++)
        k.first_run[i + 1] = k.first_run[i] + synth_n_runs(&m->tensors[i]);
    pthread_mutex_init(&k.lock, NULL);
    pthread_cond_init(&k.ended, NULL);
    int started = 0;
    pthread_mutex_lock(&k.lock);
    while (started < n_threads && pthread_create(&threads[started], NULL, worker, &k) == 0)
        started++;
    k.running = started;
    pthread_mutex_unlock(&k.lock);
    if (started == 0) {
        k.status = gem_fail(&k.error, GEM_E_NOMEM, "no thread could be started");
    } else {
        watch(&k, progress, user); /* fewer threads than asked for do the same work */
        for (int i = 0; i < started; i++)
            pthread_join(threads[i], NULL);
    }
    pthread_cond_destroy(&k.ended);
    pthread_mutex_destroy(&k.lock);
    free(k.first_run);
    free(threads);
    if (k.status != GEM_OK && err) *err = k.error;
    return k.status;
}
