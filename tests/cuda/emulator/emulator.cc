/* emulator.cc - see emulator.h: fibers, and what threads of a cluster do together. One cluster runs
 * at a time, on one thread of the host. */
#include <sys/mman.h>

#include <memory>

#include "cuda_fp16.h" /* behind the others: it makes words of theirs its own */

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#ifndef __x86_64__
#error "the emulator's change of stacks is written for x86-64"
#endif

uint3 gridDim, blockDim;

namespace emulator
{

enum { STACK = SANITIZED ? 128 * 1024 : 64 * 1024, MOST_BARRIERS = 16 };

/* ---- state ---- */

struct meeting {
    uint32_t mask = 0, arrived = 0;
    int turn = 0;
    const char *what = nullptr;
    slots s[2];
};

struct wgmma_op {
    float *d[32];
    uint32_t a[32][4];
    uint64_t a_tile, b_tile;
    int n;
    bool of_registers, b_rows_of_k, add;
};

struct warp {
    std::vector<std::unique_ptr<meeting>> meetings;
    std::vector<std::vector<wgmma_op>> groups; /* of warpgroup products; the last one is open */
    int rank;                                  /* in its CTA */
};

struct barrier {
    int arrived = 0, wanted = 0;
    std::vector<thread *> waiting;
};

struct cta {
    uint3 id;
    uint8_t *memory;
    int alive;
    barrier named[MOST_BARRIERS];
};

struct thread_copy {
    uint32_t dst, valid;
    const void *src;
};
struct fiber {
    std::vector<std::vector<thread_copy>> groups; /* the last one is open */
    uint8_t *stack;
    void *fake = nullptr; /* of ASan */
    bool done;
};

struct pending {
    uint32_t dst, n, bar;
    const void *src;
    uint8_t value[16];
};

thread *self;

static std::vector<thread> threads;
static std::vector<fiber> fibers;
static std::vector<warp> warps;
static std::vector<cta> ctas;
static std::vector<thread *> ready; /* a ring of 2^n: [head, head + n_ready) */
static size_t head, n_ready;
static int n_alive;
static barrier whole; /* of the cluster */
static std::vector<pending> bulk;
static std::map<uint32_t, std::vector<thread *>> awaited; /* by barrier */
static uint8_t *memory, *stacks;
static size_t n_stacks;
static const std::function<void()> *body;
static std::map<const void *, int> allowed;
static std::map<const void *, uint32_t> sites; /* of this launch */
static uint32_t static_used; /* of a CTA's shared memory, with what the launch asked for in front */
static thread outside;
static fiber outside_fiber;
static const char *kernel_at = "before the first kernel";

static uint64_t seed_of()
{
    const char *s = getenv("GEM_EMULATOR_SEED");
    return s ? strtoull(s, nullptr, 10) : 0;
}
static const uint64_t seed = seed_of();
static uint64_t chance_state = seed * 0x9e3779b97f4a7c15u + 1;
static uint32_t chance(uint32_t n) /* 0 .. n - 1 */
{
    chance_state ^= chance_state << 13, chance_state ^= chance_state >> 7;
    chance_state ^= chance_state << 17;
    return (uint32_t)((chance_state >> 32) * n >> 32);
}

void fail(const char *what)
{
    fprintf(stderr, "emulator: %s (kernel %s", what, kernel_at);
    if (self && self != &outside)
        fprintf(stderr, ", block %u %u %u, thread %u %u", self->of->id.x, self->of->id.y,
                self->of->id.z, self->tid.x, self->tid.y);
    fprintf(stderr, ", seed %llu)\n", (unsigned long long)seed);
    abort();
}

uint3 block_of(const thread *t)
{
    return t->of->id;
}

/* ---- change of threads ---- */

extern "C" void gem_emulator_switch(void **save, void *load);
asm(".text\n.p2align 4\n.globl gem_emulator_switch\n.type gem_emulator_switch,@function\n"
    "gem_emulator_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size gem_emulator_switch, . - gem_emulator_switch\n");

static fiber &fiber_of(thread *t)
{
    return t == &outside ? outside_fiber : fibers[(size_t)(t - threads.data())];
}

static void go(thread *to, bool for_good)
{
    thread *from = self;
    if (to == from) return;
    self = to;
#if SANITIZED
    const uint8_t *stack = to == &outside ? nullptr : fiber_of(to).stack;
    static const void *main_stack;
    static size_t main_size;
    if (from == &outside) { /* its borders come back from the first switch away */
        __sanitizer_start_switch_fiber(&fiber_of(from).fake, stack, STACK);
    } else {
        __sanitizer_start_switch_fiber(for_good ? nullptr : &fiber_of(from).fake,
                                       to == &outside ? main_stack : stack,
                                       to == &outside ? main_size : STACK);
    }
    gem_emulator_switch(&from->sp, to->sp);
    const void *old;
    size_t size;
    __sanitizer_finish_switch_fiber(fiber_of(self).fake, &old, &size);
    if (self != &outside && !main_stack) main_stack = old, main_size = size;
#else
    (void)for_good;
    gem_emulator_switch(&from->sp, to->sp);
#endif
}

static void wake(thread *t)
{
    ready[(head + n_ready++) & (ready.size() - 1)] = t;
}
/* Before the others: lanes that met go on together while their stacks are in the cache. */
static void wake_first(thread *t)
{
    head = (head - 1) & (ready.size() - 1);
    ready[head] = t;
    n_ready++;
}
static void wake(std::vector<thread *> &all)
{
    for (thread *t : all)
        wake(t);
    all.clear();
}

static bool land(size_t i);

/* The next thread runs; this one when it is woken. */
static void park(bool for_good = false)
{
    if (seed && !bulk.empty() && chance(16) == 0) land(chance((uint32_t)bulk.size()));
    while (n_ready == 0) {
        if (n_alive == 0) return go(&outside, for_good);
        if (bulk.empty()) {
            std::string who = "every thread waits for another:";
            for (const thread &t : threads) {
                if (fibers[(size_t)(&t - threads.data())].done) continue;
                who += " " + std::to_string(t.of->id.x) + ":" + std::to_string(t.tid.x);
                if (who.size() > 200) break;
            }
            fail(who.c_str());
        }
        land(seed ? chance((uint32_t)bulk.size()) : 0);
    }
    if (seed)
        std::swap(ready[head], ready[(head + chance((uint32_t)n_ready)) & (ready.size() - 1)]);
    thread *next = ready[head];
    head = (head + 1) & (ready.size() - 1);
    n_ready--;
    go(next, for_good);
}

/* ---- barriers ---- */

static void open_if_full(barrier &b, int n)
{
    if (b.arrived < n) return;
    b.arrived = b.wanted = 0;
    wake(b.waiting);
}

static void wait_at(barrier &b, int n)
{
    if (b.arrived && b.wanted != n) fail("threads come to one barrier with different numbers");
    b.wanted = n;
    if (++b.arrived == n) return open_if_full(b, n);
    b.waiting.push_back(self);
    park();
}

void bar_sync(int id, int n)
{
    barrier &b = self->of->named[id];
    if (n) return wait_at(b, n);
    if (++b.arrived == self->of->alive) return open_if_full(b, self->of->alive);
    b.waiting.push_back(self);
    park();
}

void cluster_sync()
{
    if (++whole.arrived == n_alive) return open_if_full(whole, n_alive);
    whole.waiting.push_back(self);
    park();
}

/* An mbarrier (PTX ISA, "mbarrier object") in its 64 bits. */
struct mbarrier {
    uint32_t phase : 1, left : 15, arrivals : 16;
    int32_t bytes;
};
static_assert(sizeof(mbarrier) == 8, "");

static void change(uint32_t bar, int arrivals, int32_t bytes)
{
    mbarrier m;
    if (bar % 8) fail("a barrier that is not aligned to 8 bytes");
    memcpy(&m, at(bar), sizeof(m));
    if ((int)m.left < arrivals) fail("more arrivals at a barrier than its phase takes");
    m.left = (uint32_t)((int)m.left - arrivals) & 0x7fff;
    m.bytes += bytes;
    const bool ends = m.left == 0 && m.bytes == 0;
    if (ends) m.phase ^= 1, m.left = m.arrivals & 0x7fff;
    memcpy(at(bar), &m, sizeof(m));
    if (ends) wake(awaited[bar]);
}

void barrier_init(uint32_t bar, int arrivals)
{
    const mbarrier m = {0, (uint32_t)arrivals & 0x7fff, (uint32_t)arrivals & 0xffff, 0};
    if (bar % 8) fail("a barrier that is not aligned to 8 bytes");
    memcpy(at(bar), &m, sizeof(m));
}

void barrier_arrive(uint32_t bar, uint32_t expected_bytes)
{
    change(bar, 0, (int32_t)expected_bytes);
    change(bar, 1, 0);
}

void barrier_await(uint32_t bar, uint32_t parity)
{
    mbarrier m;
    for (;;) {
        memcpy(&m, at(bar), sizeof(m));
        if (m.phase != parity) return;
        awaited[bar].push_back(self);
        park();
    }
}

/* ---- asynchronous copies ---- */

static bool land(size_t i)
{
    const pending p = bulk[i];
    bulk[i] = bulk.back();
    bulk.pop_back();
    memcpy(at(p.dst), p.src ? p.src : p.value, p.n);
    change(p.bar, 0, -(int32_t)p.n);
    return true;
}

void copy_async(uint32_t dst, const void *src, const void *value, uint32_t n, uint32_t bar)
{
    pending p = {dst, n, bar, src, {}};
    if (n % 16 || dst % 16 || (uintptr_t)src % 16)
        fail("a bulk copy that is not aligned to 16 bytes");
    if (value) memcpy(p.value, value, n);
    bulk.push_back(p);
    if (!seed) land(bulk.size() - 1);
}

void copy_thread(uint32_t dst, const void *src, uint32_t valid)
{
    if (dst % 16 || (valid && (uintptr_t)src % 16)) fail("a copy that is not aligned to 16 bytes");
    fiber_of(self).groups.back().push_back({dst, valid, src});
}

void copy_commit()
{
    fiber_of(self).groups.emplace_back();
}

void copy_wait(int left)
{
    auto &groups = fiber_of(self).groups;
    while ((int)groups.size() > left + 1) {
        for (const thread_copy &c : groups.front()) {
            memset(at(c.dst), 0, 16);
            memcpy(at(c.dst), c.src, c.valid);
        }
        groups.erase(groups.begin());
    }
}

/* ---- warps ---- */

const slots &meet(uint32_t mask, const char *what, const void *value, size_t bytes,
                  void (*all)(slots &, void *), void *ctx)
{
    warp &w = *self->in;
    meeting *m = nullptr;
    if (!(mask >> self->lane & 1)) fail("a lane meets others under a mask without it");
    for (auto &x : w.meetings)
        if (x->mask == mask) m = x.get();
    if (!m) {
        w.meetings.emplace_back(new meeting);
        m = w.meetings.back().get();
        m->mask = mask;
    }
    if (m->arrived && m->what != what && strcmp(m->what, what) != 0) {
        const std::string both = std::string("lanes of a warp meet at ") + m->what + " and " + what;
        fail(both.c_str());
    }
    m->what = what;
    slots &s = m->s[m->turn];
    memcpy(s.in[self->lane], value, bytes);
    m->arrived |= 1u << self->lane;
    if (m->arrived != mask) {
        park();
        return s;
    }
    m->arrived = 0;
    m->turn ^= 1;
    if (all) all(s, ctx);
    thread *first = self - self->lane;
    for (int i = 31; i >= 0; i--)
        if (mask >> i & 1 && i != self->lane) wake_first(first + i);
    return s;
}

static uint16_t low(uint32_t x)
{
    return (uint16_t)x;
}
static uint16_t high(uint32_t x)
{
    return (uint16_t)(x >> 16);
}

static uint32_t word(const uint8_t *p)
{
    uint32_t x;
    memcpy(&x, p, 4);
    return x;
}

void ldmatrix4(uint32_t r[4], uint32_t at_, bool trans)
{
    const auto all = [](slots &s, void *ctx) {
        for (int j = 0; j < 4; j++) {
            const uint8_t *row[8];
            for (int i = 0; i < 8; i++) {
                const uint32_t a = word(s.in[8 * j + i]);
                if (a % 16) fail("ldmatrix of a row that is not aligned to 16 bytes");
                row[i] = at(a);
            }
            for (int l = 0; l < 32; l++) {
                const int g = l / 4, t = l % 4;
                uint32_t x = word(row[g] + 4 * t);
                if (ctx) {
                    uint16_t a, b;
                    memcpy(&a, row[2 * t] + 2 * g, 2), memcpy(&b, row[2 * t + 1] + 2 * g, 2);
                    x = (uint32_t)b << 16 | a;
                }
                memcpy(s.out[l] + 4 * j, &x, 4);
            }
        }
    };
    const slots &s =
        meet(~0u, trans ? "ldmatrix.trans" : "ldmatrix", &at_, 4, all, trans ? &at_ : nullptr);
    memcpy(r, s.out[self->lane], 16);
}

uint32_t movmatrix(uint32_t x)
{
    const slots &s = meet(~0u, "movmatrix", &x, 4);
    const int g = self->lane / 4, t = self->lane % 4;
    const uint32_t a = word(s.in[8 * t + g / 2]), b = word(s.in[8 * t + 4 + g / 2]);
    return g % 2 ? (uint32_t)high(b) << 16 | high(a) : (uint32_t)low(b) << 16 | low(a);
}

/* d[16][n] += a[16][16] b[16][n] */
static void product(float *d, const float a[16][16], const float *b, int n)
{
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++) {
            const float x = a[i][k];
            for (int j = 0; j < n; j++)
                d[i * n + j] += x * b[k * n + j];
        }
}

/* a as the four registers of each lane hold it */
static void a_of(float a[16][16], int lane, const uint32_t r[4])
{
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) {
        float *to = &a[g + i % 2 * 8][2 * t + i / 2 * 8];
        to[0] = half_value(low(r[i])), to[1] = half_value(high(r[i]));
    }
}

void mma16816(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    uint32_t in[10] = {a[0], a[1], a[2], a[3], b0, b1};
    memcpy(in + 6, d, 16);
    const auto all = [](slots &s, void *) {
        float x[16][16], y[16 * 8], sum[16 * 8];
        for (int l = 0; l < 32; l++) {
            const int g = l / 4, t = l % 4;
            uint32_t v[10];
            memcpy(v, s.in[l], sizeof(v));
            a_of(x, l, v);
            for (int i = 0; i < 2; i++) {
                y[(2 * t + 8 * i) * 8 + g] = half_value(low(v[4 + i]));
                y[(2 * t + 1 + 8 * i) * 8 + g] = half_value(high(v[4 + i]));
            }
            memcpy(sum + g * 8 + 2 * t, v + 6, 8), memcpy(sum + (g + 8) * 8 + 2 * t, v + 8, 8);
        }
        product(sum, x, y, 8);
        for (int l = 0; l < 32; l++) {
            const int g = l / 4, t = l % 4;
            memcpy(s.out[l], sum + g * 8 + 2 * t, 8),
                memcpy(s.out[l] + 8, sum + (g + 8) * 8 + 2 * t, 8);
        }
    };
    const slots &s = meet(~0u, "mma.m16n8k16", in, sizeof(in), all);
    memcpy(d, s.out[self->lane], 16);
}

/* ---- warpgroups ---- */

/* Value at `offset` bytes of an operand with 128-byte swizzle: 16-byte chunks of an address are
 * permuted by its bits 7 to 9. */
static float swizzled(uint64_t tile, uint32_t offset)
{
    uint32_t a = ((uint32_t)(tile & 0x3fff) << 4) + offset;
    uint16_t h;
    a ^= (a >> 7 & 7) << 4;
    memcpy(&h, at(a), 2);
    return half_value(h);
}

static void multiply(const wgmma_op &op, int rank)
{
    static float a[16][16], b[16 * 256], d[16 * 256];
    const int n = op.n;
    for (int l = 0; l < 32 && op.of_registers; l++)
        a_of(a, l, op.a[l]);
    for (int i = 0; i < 256 && !op.of_registers; i++)
        a[i / 16][i % 16] =
            swizzled(op.a_tile, (uint32_t)((16 * (rank % 4) + i / 16) * 128 + i % 16 * 2));
    const uint32_t stride = (uint32_t)(op.b_tile >> 16 & 0x3fff) << 4; /* of tiles of 64 columns */
    for (int k = 0; k < 16; k++)
        for (int j = 0; j < n; j++)
            b[k * n + j] = swizzled(op.b_tile, op.b_rows_of_k ? (uint32_t)(j / 64) * stride +
                                                                    (uint32_t)(k * 128 + j % 64 * 2)
                                                              : (uint32_t)(j * 128 + k * 2));
    for (int pass = 0; pass < 2; pass++) {
        for (int l = 0; l < 32; l++)
            for (int j = 0; j < n / 2; j++) {
                float &to = d[(l / 4 + j / 2 % 2 * 8) * n + j / 4 * 8 + l % 4 * 2 + j % 2];
                if (pass == 0)
                    to = op.add ? op.d[l][j] : 0;
                else
                    op.d[l][j] = to;
            }
        if (pass == 0) product(d, a, b, n);
    }
}

void wgmma(float *d, int n, const uint32_t *a, uint64_t a_tile, uint64_t b_tile, bool b_rows_of_k,
           bool add)
{
    struct {
        float *d;
        uint32_t a[4];
    } in = {d, {}};
    wgmma_op op = {{}, {}, a_tile, b_tile, n, a != nullptr, b_rows_of_k, add};
    if (a) memcpy(in.a, a, sizeof(in.a));
    const auto all = [](slots &s, void *ctx) {
        wgmma_op *op = (wgmma_op *)ctx;
        for (int l = 0; l < 32; l++) {
            memcpy(&op->d[l], s.in[l], sizeof(float *));
            memcpy(op->a[l], s.in[l] + sizeof(float *), sizeof(op->a[l]));
        }
        self->in->groups.back().push_back(*op);
    };
    meet(~0u, "wgmma", &in, sizeof(in), all, &op);
}

static void multiply_until(warp &w, size_t left)
{
    while (w.groups.size() > left + 1) {
        for (const wgmma_op &op : w.groups.front())
            multiply(op, w.rank);
        w.groups.erase(w.groups.begin());
    }
}

void wgmma_commit()
{
    meet(~0u, "wgmma.commit", nullptr, 0, [](slots &, void *) {
        self->in->groups.emplace_back();
        if (!seed) multiply_until(*self->in, 0);
    });
}

void wgmma_wait(int left)
{
    meet(
        ~0u, "wgmma.wait", nullptr, 0,
        [](slots &, void *ctx) { multiply_until(*self->in, *(int *)ctx); }, &left);
}

/* ---- shared memory ---- */

uint8_t *dynamic_shared()
{
    return self->of->memory;
}

void *static_shared(const void *site, size_t bytes, size_t alignment)
{
    const auto found = sites.find(site);
    if (found != sites.end()) return self->of->memory + found->second;
    const uint32_t from = (uint32_t)((static_used + alignment - 1) / alignment * alignment);
    static_used = from + (uint32_t)bytes;
    if (static_used > SHARED_MOST) fail("more shared memory than a CTA may have");
    sites[site] = from;
    for (const cta &c : ctas)
        memset(c.memory + from, 0xff, bytes);
    return self->of->memory + from;
}

uint32_t address_of(const void *p)
{
    const ptrdiff_t a = (const uint8_t *)p - memory;
    if (a < 0 || a >= (ptrdiff_t)(ctas.size() * CTA_BYTES))
        fail("a shared address of other memory");
    return (uint32_t)a;
}

uint8_t *at(uint32_t address)
{
    if (address % CTA_BYTES >= static_used || address / CTA_BYTES >= ctas.size())
        fail("an address behind a CTA's shared memory");
    return memory + address;
}

uint32_t of_rank(uint32_t address, int rank)
{
    if (rank < 0 || (size_t)rank >= ctas.size()) fail("a rank that the cluster does not have");
    return address % CTA_BYTES + (uint32_t)rank * CTA_BYTES;
}

/* ---- launches ---- */

void allow_shared(const void *kernel, int bytes)
{
    allowed[kernel] = bytes;
}

static void ended()
{
    cta *c = self->of;
    fiber_of(self).done = true;
    c->alive--;
    n_alive--;
    for (auto &m : self->in->meetings)
        if (m->arrived && m->mask >> self->lane & 1)
            fail("a lane ends while others of its mask wait for it");
    if (c->alive && c->named[0].arrived) open_if_full(c->named[0], c->alive);
    if (n_alive && whole.arrived) open_if_full(whole, n_alive);
    park(true);
}

static void start()
{
#if SANITIZED
    const void *old;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &old, &size);
#endif
    (*body)();
    ended();
}

static void prepare(thread &t, fiber &f)
{
#if SANITIZED
    __asan_unpoison_memory_region(f.stack, STACK); /* the thread before never returned */
#endif
    /* not all at the same place of their pages: they would share few lines of the caches */
    const size_t color = (size_t)(&t - threads.data()) * 832 % 16384;
    void **top = (void **)(f.stack + STACK - 64 - color);
    *--top = nullptr; /* where start would return to: it does not */
    *--top = (void *)start;
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    t.sp = top;
    f.done = false;
    f.groups.resize(1);
    f.groups[0].clear();
}

static void room_for(size_t n_ctas, size_t n_threads)
{
    const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (!memory)
        memory =
            (uint8_t *)mmap(nullptr, (size_t)16 * CTA_BYTES, PROT_READ | PROT_WRITE, how, -1, 0);
    if (n_threads > n_stacks) {
        if (stacks) {
#if SANITIZED
            __asan_unpoison_memory_region(stacks, n_stacks * STACK); /* others may get the place */
#endif
            munmap(stacks, n_stacks * STACK);
        }
        n_stacks = n_threads;
        stacks = (uint8_t *)mmap(nullptr, n_stacks * STACK, PROT_READ | PROT_WRITE, how, -1, 0);
    }
    if (n_ctas > 16 || memory == MAP_FAILED || stacks == MAP_FAILED)
        fail("no memory for a cluster");
    ctas.resize(n_ctas);
    threads.resize(n_threads);
    fibers.resize(n_threads);
    size_t ring = 1;
    while (ring <= n_threads)
        ring *= 2;
    ready.resize(ring);
    warps.resize((n_threads + 31) / 32);
}

static void run_cluster(uint3 first, unsigned size)
{
    const int per_cta = (int)(blockDim.x * blockDim.y * blockDim.z);
    for (unsigned i = 0; i < size; i++) {
        cta &c = ctas[i];
        c.id = {first.x + i, first.y, first.z};
        c.memory = memory + i * CTA_BYTES;
        c.alive = per_cta;
        for (barrier &b : c.named)
            b = barrier();
        memset(c.memory, 0xff, static_used); /* NaNs */
    }
    for (warp &w : warps) {
        const size_t i = (size_t)(&w - warps.data());
        w.rank = (int)(i % (size_t)(per_cta / 32));
        w.groups.resize(1);
        w.groups[0].clear();
        for (auto &m : w.meetings)
            m->arrived = 0;
    }
    head = n_ready = 0;
    n_alive = (int)threads.size();
    whole = barrier();
    awaited.clear();
    for (size_t i = 0; i < threads.size(); i++) {
        thread &t = threads[i];
        const unsigned at_ = (unsigned)(i % (size_t)per_cta);
        t.tid = {at_ % blockDim.x, at_ / blockDim.x % blockDim.y, at_ / blockDim.x / blockDim.y};
        t.lane = (int)(at_ % 32);
        t.in = &warps[i / 32];
        t.of = &ctas[i / (size_t)per_cta];
        fibers[i].stack = stacks + i * STACK;
        prepare(t, fibers[i]);
        wake(&t);
    }
    self = &outside;
    park();
    self = nullptr;
    if (!bulk.empty()) fail("a CTA ends before a copy into its shared memory has come");
    for (const warp &w : warps)
        if (w.groups.size() > 1 || !w.groups[0].empty())
            fail("a warp ends before its products are done");
}

void run(const void *kernel, dim3 grid, dim3 block, unsigned cluster, size_t shared,
         const std::function<void()> &what)
{
    const unsigned per_cta = block.x * block.y * block.z;
    char name[32];
    snprintf(name, sizeof(name), "%p", kernel);
    kernel_at = name;
    if (!grid.x || !grid.y || !grid.z || !per_cta || per_cta > 1024 || grid.y > 65535 ||
        grid.z > 65535)
        fail("a grid or a block of no size or too large a one");
    if (grid.x % cluster) fail("a grid that is not whole clusters");
    if (per_cta % 32) fail("a block that is not whole warps");
    const auto most = allowed.find(kernel);
    if (shared > (most == allowed.end() ? 48u * 1024 : (size_t)most->second))
        fail("more dynamic shared memory than the kernel was given");
    gridDim = {grid.x, grid.y, grid.z};
    blockDim = {block.x, block.y, block.z};
    static_used = (uint32_t)shared;
    sites.clear();
    body = &what;
    room_for(cluster, (size_t)cluster * per_cta);
    std::vector<uint32_t> order((size_t)grid.x / cluster * grid.y * grid.z);
    for (size_t i = 0; i < order.size(); i++) {
        order[i] = (uint32_t)i;
        if (seed) std::swap(order[i], order[chance((uint32_t)i + 1)]);
    }
    for (uint32_t i : order) {
        const uint32_t x = grid.x / cluster;
        run_cluster({i % x * cluster, i / x % grid.y, i / x / grid.y}, cluster);
    }
    kernel_at = "between kernels";
}

/* ---- f16 ---- */

static float value_of(uint16_t h)
{
    const int e = h >> 10 & 31, m = h & 1023;
    const float v = e == 31 ? (m ? NAN : INFINITY)
                    : e     ? ldexpf((float)(1024 + m), e - 25)
                            : ldexpf((float)m, -24);
    return h >> 15 ? -v : v;
}

float half_values[65536];
[[maybe_unused]] static const bool filled = [] {
    for (int i = 0; i < 65536; i++)
        half_values[i] = value_of((uint16_t)i);
    return true;
}();

uint16_t half_of(float x)
{
    const uint32_t u = bits_as<uint32_t>(x), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return 0x7fff;
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and above */
    if (a < 0x33000001u) return (uint16_t)sign;              /* 2^-25 and below */
    const int e = (int)(a >> 23), shift = e < 113 ? 126 - e : 13;
    const uint32_t m = (a & 0x7fffffu) | 0x800000u;
    uint32_t h = m >> shift;
    const uint32_t rest = m & ((1u << shift) - 1), half = 1u << (shift - 1);
    if (rest > half || (rest == half && (h & 1))) h++;
    return (uint16_t)(sign | (e < 113 ? h : h + ((uint32_t)(e - 113) << 10)));
}

} // namespace emulator
