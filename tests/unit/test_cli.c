/* test_cli.c - option tables: values, ranges, refusals; exit codes; model names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "cmd/cli/cli.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    bool flag, seen;
    const char *text, *config;
    int32_t number;
    uint64_t seed;
    float x;
    int kind;
} opt;

static const cli_option options[] = {
    {"flag", 'f', CLI_FLAG, NULL, &opt.flag, 0, 0, "a flag", NULL},
    {"text", 0, CLI_TEXT, "TEXT", &opt.text, 0, 0, "a text", NULL},
    {"number", 'n', CLI_INT, "N", &opt.number, 1, 10, "a number", &opt.seen},
    {"seed", 0, CLI_U64, "N", &opt.seed, 0, 0, "a seed", NULL},
    {"x", 0, CLI_FLOAT, "X", &opt.x, 0, 1, "a share", NULL},
    {"kind", 0, CLI_CHOICE, "f32|f16|f16-full", &opt.kind, 0, 0, "a choice", NULL},
    {"config", 0, CLI_CONFIG, "FILE", &opt.config, 0, 0, "a file", NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL}};
static const cli_command command = {"prog", "MODEL", "a program", NULL, 1, 2, options};

/* Split on blanks, parse, return cli_parse's answer. */
static int parse(const char *line, int *n_args)
{
    static char buf[256];
    char *argv[16] = {(char *)"prog"}, **args;
    int argc = 1;
    memset(&opt, 0, sizeof(opt));
    snprintf(buf, sizeof(buf), "%s", line);
    for (char *w = strtok(buf, " "); w; w = strtok(NULL, " "))
        argv[argc++] = w;
    return cli_parse(&command, argc, argv, &args, n_args);
}

static void test_values_reach_their_fields(void **state)
{
    int n;
    (void)state;
    assert_int_equal(
        parse("m -f --text hello -n 10 --seed 18446744073709551615 --x 0.25 --kind f16-full extra",
              &n),
        -1);
    assert_int_equal(n, 2);
    assert_true(opt.flag && opt.seen);
    assert_string_equal(opt.text, "hello");
    assert_int_equal(opt.number, 10);
    assert_true(opt.seed == UINT64_MAX);
    assert_true(opt.x == 0.25f);
    assert_int_equal(opt.kind, 2);
    assert_int_equal(parse("m --kind=f16 --number=1", &n), -1);
    assert_int_equal(opt.kind, 1);
    assert_int_equal(opt.number, 1);
}

static void test_what_cannot_be_meant_is_usage(void **state)
{
    static const char *const bad[] = {"",
                                      "m --nothing",
                                      "m -z",
                                      "m -n 0",
                                      "m -n 11",
                                      "m -n 3x",
                                      "m -n",
                                      "m --x 1.5",
                                      "m --x nan",
                                      "m --x inf",
                                      "m --seed -1",
                                      "m --seed 1e3",
                                      "m --kind f64",
                                      "m --kind f",
                                      "m --seed 18446744073709551616",
                                      "a b c",
                                      "m --flag=1",
                                      "m --kind f32|f16"};
    int n;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (parse(bad[i], &n) != CLI_USAGE) fail_msg("accepted: '%s'", bad[i]);
}

static void test_double_dash_ends_options(void **state)
{
    int n;
    (void)state;
    assert_int_equal(parse("-- -n 5", &n), -1);
    assert_int_equal(n, 2);
    assert_false(opt.seen);
}

static void test_status_gives_exit_code(void **state)
{
    (void)state;
    assert_int_equal(cli_exit_code(GEM_OK), 0);
    assert_int_equal(cli_exit_code(GEM_E_FORMAT), 1);
    assert_int_equal(cli_exit_code(GEM_E_ARG), 2);
    assert_int_equal(cli_exit_code(GEM_E_RANGE), 2);
    assert_int_equal(cli_exit_code(GEM_E_IO), 3);
    assert_int_equal(cli_exit_code(GEM_E_UNSUPPORTED), 3);
    assert_int_equal(cli_exit_code(GEM_E_NOMEM), 3);
    assert_int_equal(cli_exit_code(GEM_E_DEVICE), 4);
    assert_int_equal(cli_exit_code(GEM_E_CANCELLED), 130);
}

static void test_model_names(void **state)
{
    char dir[] = "/tmp/gem-test-XXXXXX", path[4096], want[4096];
    gem_error err;
    (void)state;
    assert_non_null(mkdtemp(dir));
    setenv("XDG_CACHE_HOME", dir, 1);

    assert_int_equal(cli_model_path("gemma-3-270m", path, sizeof(path), &err), GEM_E_IO);
    assert_non_null(strstr(err.text, "gem pull gemma-3-270m"));
    assert_int_equal(cli_model_path("nonesuch", path, sizeof(path), &err), GEM_E_IO);
    assert_non_null(strstr(err.text, "qwen2.5-coder-0.5b"));
    assert_int_equal(cli_model_path("./nonesuch.gguf", path, sizeof(path), &err), GEM_E_IO);
    assert_non_null(strstr(err.text, "No such file"));

    snprintf(want, sizeof(want), "%s/gem", dir);
    assert_int_equal(mkdir(want, 0755), 0);
    snprintf(want, sizeof(want), "%s/gem/gemma-3-270m-q4_k_m.gguf", dir);
    assert_int_equal(gem_file_write_atomic(want, "x", 1, &err), GEM_OK);
    assert_int_equal(cli_model_path("gemma-3-270m", path, sizeof(path), &err), GEM_OK);
    assert_string_equal(path, want);
    unlink(want);
    snprintf(want, sizeof(want), "%s/gem", dir);
    rmdir(want);
    rmdir(dir);
}

/* ---- files of options ---- */

static const char *config_path(void)
{
    static char path[64];
    snprintf(path, sizeof(path), "/tmp/gem-test-cli-%d.conf", (int)getpid());
    return path;
}

static void write_config(const char *text, size_t len)
{
    FILE *f = fopen(config_path(), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    fclose(f);
}

/* Parse with this file and these options; the text of stderr is dropped. */
static int parse_config(const char *text, const char *more, int *n_args)
{
    char line[256];
    write_config(text, strlen(text));
    snprintf(line, sizeof(line), "--config %s %s", config_path(), more);
    return parse(line, n_args);
}

static void test_config(void **state)
{
    int n;
    (void)state;
    assert_int_equal(
        parse_config("# a comment\n\n model = m # 1.gguf\n  text=  a = b  \r\nnumber = 7\n"
                     "flag = true\nseed = 5\nx = 0.5\nkind = f16",
                     "", &n),
        -1);
    assert_int_equal(n, 1);
    assert_true(opt.flag && opt.seen);
    assert_string_equal(opt.text, "a = b");
    assert_int_equal(opt.number, 7);
    assert_int_equal(opt.kind, 1);
    /* what is given wins, wherever it stands */
    static const char file[] = "number = 7\nflag = false\ntext = file\nmodel = no";
    write_config(file, sizeof(file) - 1);
    char line[256];
    snprintf(line, sizeof(line), "m -n 9 --config %s --text given", config_path());
    assert_int_equal(parse(line, &n), -1);
    assert_int_equal(n, 1);
    assert_int_equal(opt.number, 9);
    assert_string_equal(opt.text, "given");
    assert_false(opt.flag);
    assert_int_equal(parse_config("number = 3", "", &n), CLI_USAGE); /* no model anywhere */
    unlink(config_path());
    assert_int_equal(parse(line, &n), CLI_CANNOT); /* no such file */
}

static void test_config_refusals(void **state)
{
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"number = 11", ":1: number is '11', expected a whole number from 1 to 10"},
        {"\n# x\nnumber =", ":3: number is '', expected a whole number from 1 to 10"},
        {"number = 1\nnumber = 1", ":2: number is set a second time, after line 1"},
        {"model = a\nmodel = b", ":2: model is set a second time, after line 1"},
        {"model =", ":1: model is '', expected a file or a name"},
        {"numbers = 1",
         ":1: there is no option 'numbers'; expected the long name of one in prog --help"},
        {"--number = 1",
         ":1: there is no option '--number'; expected the long name of one in prog --help"},
        {"n = 1", ":1: there is no option 'n'; expected the long name of one in prog --help"},
        {"flag", ":1: 'flag', expected name = value"},
        {"flag = yes", ":1: flag is 'yes', expected true or false"},
        {"flag =", ":1: flag is '', expected true or false"},
        {"x = warm", ":1: x is 'warm', expected a number from 0 to 1"},
        {"x = nan", ":1: x is 'nan', expected a number from 0 to 1"},
        {"seed = -1", ":1: seed is '-1', expected a whole number from 0 to 2^64 - 1"},
        {"kind = f64", ":1: kind is 'f64', expected one of f32|f16|f16-full"},
        {"text =", ":1: text is '', expected TEXT"},
        {"config = other", ":1: config: a file cannot name another one"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *arg = NULL, want[512];
        gem_error err;
        write_config(cases[i].text, strlen(cases[i].text));
        assert_int_equal(cli_config_read(&command, config_path(), &arg, &err), GEM_E_ARG);
        snprintf(want, sizeof(want), "%s%s", config_path(), cases[i].sentence);
        assert_string_equal(err.text, want);
    }
    char *arg = NULL;
    gem_error err;
    write_config("number = 1\0\n", 12);
    assert_int_equal(cli_config_read(&command, config_path(), &arg, &err), GEM_E_ARG);
    unlink(config_path());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_config_refusals),
        cmocka_unit_test(test_values_reach_their_fields),
        cmocka_unit_test(test_what_cannot_be_meant_is_usage),
        cmocka_unit_test(test_double_dash_ends_options),
        cmocka_unit_test(test_status_gives_exit_code),
        cmocka_unit_test(test_model_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
