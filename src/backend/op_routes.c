/* op_routes.c - the table. Numbers and names are those of the benchmark protocol
 * (docs/benchmarking.md). */
#include "backend/op_routes.h"

#include <stdio.h>

#define DECODE "decode-attention"
#define PREFILL "prefill-attention"

static const gem_op_route table[] = {
    {"dim64", 0, DECODE, "value_tile", false, "values in tiles of 64 dims"},
    {"dim32", 18, DECODE, "value_tile", false, "values in tiles of 32 dims, promoted into 19"},
    {"split16", 19, DECODE, "production", true,
     "values in tiles of 32 dims over 16 partitions of the keys"},
    {"score-tile8", 20, DECODE, "score_tile", false, "as split16, keys staged eight at a time"},
    {"online-row2", 22, PREFILL, "query_rows", false, "online softmax, two query rows"},
    {"online-row4", 0, PREFILL, "query_rows", false, "online softmax, four query rows"},
    {"bq8-bk64", 19, PREFILL, "production", true,
     "online softmax, eight query rows, tiles of 64 keys"},
    {"bq8-bk128", 23, PREFILL, "key_tile", false, "as bq8-bk64, tiles of 128 keys"},
    {"verify8-4sg", 0, "linear", "production", true, "eight rows of a verification at once"},
};

const gem_op_route *gem_op_route_at(size_t i)
{
    return i < ARRAY_LEN(table) ? &table[i] : NULL;
}

const gem_op_route *gem_op_route_find(const char *op, const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (!strcmp(table[i].op, op) && !strcmp(table[i].name, name)) return &table[i];
    return NULL;
}

const gem_op_route *gem_op_route_by_selector(const char *op, int selector)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (!strcmp(table[i].op, op) && selector && table[i].selector == selector) return &table[i];
    return NULL;
}

bool gem_op_route_names(const char *op, char *out, size_t size)
{
    size_t at = 0;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (strcmp(table[i].op, op) != 0) continue;
        int n = snprintf(out + at, size - at, "%s%s", at ? ", " : "", table[i].name);
        if (n < 0 || (size_t)n >= size - at) return false;
        at += (size_t)n;
    }
    return at > 0;
}
