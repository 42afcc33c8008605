"""Options as each subcommand reads them from its table, and the help that the table gives."""

import subprocess

import pytest
from programs import compiled

# options WORD ...: what was read, or the help of the table if there are no words. errno is what an earlier call left.
OPTIONS = r"""
#include "cli.h"
#include <errno.h>
#include <inttypes.h>
static cli_option options[] = {
  {"--flag", NULL, "a flag", CLI_FLAG, NULL, 0, 0, NULL, 0},
  {"--word", "W", "two\nlines", CLI_WORD, NULL, 0, 0, NULL, 0},
  {"--number", "A-NUMBER-OF-ONE", "26 columns", CLI_NUMBER, NULL, 1, 9, NULL, 0},
  {"--size", "SOME-LONG-VALUE-OF", "longer", CLI_SIZE, NULL, 0, UINT64_MAX, NULL, 0},
  {"--help", NULL, "this", CLI_FLAG, NULL, 0, 0, NULL, 0},
};
enum { COUNT = sizeof options / sizeof *options };
int main(int argc, char **argv) {
  if (argc == 1) {
    cli_options_help(options, COUNT);
    return 0;
  }
  errno = ERANGE;
  const int taken = cli_options_read(options, COUNT, argv + 1, "options");
  printf("%d", taken);
  for (int i = 0; i < COUNT && taken >= 0; i++)
    if (options[i].text != NULL) printf(" %s '%s' %" PRIu64, options[i].name, options[i].text, options[i].number);
  return 0;
}
"""


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    program = compiled(tmp_path_factory.mktemp("option"), OPTIONS, "option.c")

    def run(*words):
        done = subprocess.run([program, *words], capture_output=True, text=True, check=True, timeout=60)
        return done.stdout, done.stderr

    return run


MOST = 2**64 - 1


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ([], None),
        (["command", "--flag"], "0"),
        (["-", "--flag"], "0"),
        (["--flag", "command"], "1 --flag '' 0"),
        (["--flag", "--", "--flag"], "2 --flag '' 0"),
        (["-h"], "1 --help '' 0"),
        (["--help"], "1 --help '' 0"),
        (["--word", "a=b"], "2 --word 'a=b' 0"),
        (["--word=a=b", "x"], "1 --word 'a=b' 0"),
        (["--word="], "1 --word '' 0"),
        (["--word=--"], "1 --word '--' 0"),
        (["--word", "--flag", "--word", "x"], "4 --word 'x' 0"),
        (["--number", "1"], "2 --number '1' 1"),
        (["--number=9"], "1 --number '9' 9"),
        (["--number", "0x9"], "2 --number '0x9' 9"),
        (["--number", "0X9"], "2 --number '0X9' 9"),
        (["--number", "09"], "2 --number '09' 9"),
        (["--size", "0"], "2 --size '0' 0"),
        (["--size", "9"], "2 --size '9' 9"),
        (["--size", "010"], "2 --size '010' 10"),
        (["--size", "0x10"], "2 --size '0x10' 16"),
        (["--size", "0XfK"], "2 --size '0XfK' 15360"),
        (["--size", "3K"], "2 --size '3K' 3072"),
        (["--size", "3M"], "2 --size '3M' 3145728"),
        (["--size", "3G"], "2 --size '3G' 3221225472"),
        (["--size", str(MOST)], f"2 --size '{MOST}' {MOST}"),
        (["--size", f"{2**34 - 1}G"], f"2 --size '{2**34 - 1}G' {(2**34 - 1) << 30}"),
    ],
)
def test_what_is_read(options, words, read):
    if words:
        assert options(*words) == (read, "")
        return
    help_text, said = options()
    assert (help_text.splitlines(), said) == (
        [
            "  --flag                  a flag",
            "  --word W                two",
            "                          lines",
            "  --number A-NUMBER-OF-ONE 26 columns",
            "  --size SOME-LONG-VALUE-OF longer",
            "  --help                  this",
        ],
        "",
    )


@pytest.mark.parametrize("word", ["", "x", "-1", "+1", " 1", "/", ":", "1x", "0x", "1K", "0", "10", str(2**64), "1 "])
def test_what_is_no_number(options, word):
    said = f"options: --number is '{word}'; expected: a whole number from 1 to 9\n"
    assert options("--number", word) == ("-1", said)
    assert options(f"--number={word}") == ("-1", said)


@pytest.mark.parametrize("word", ["K", "1k", "1KB", "1KK", "1T", str(2**64), f"{2**34}G", f"{2**54}K", "--"])
def test_what_is_no_size(options, word):
    expected = f"a whole number from 0 to {MOST}, which K, M or G may follow"
    assert options("--size", word) == ("-1", f"options: --size is '{word}'; expected: {expected}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--flag=x"], "--flag takes no value, and was given 'x'"),
        (["--flag="], "--flag takes no value, and was given ''"),
        (["--help=x"], "--help takes no value, and was given 'x'"),
        (["--word"], "--word needs a value: --word W"),
        (["--word", "--", "x"], "--word needs a value: --word W"),
        (["--number"], "--number needs a value: --number A-NUMBER-OF-ONE"),
        (["--size"], "--size needs a value: --size SOME-LONG-VALUE-OF"),
        (["--wor", "x"], "there is no option '--wor'; 'options --help' lists them"),
        (["--wor=x"], "there is no option '--wor=x'; 'options --help' lists them"),
        (["--words=x"], "there is no option '--words=x'; 'options --help' lists them"),
        (["--sord=x"], "there is no option '--sord=x'; 'options --help' lists them"),
        (["--", "--none"], None),
        (["--flag", "-x"], "there is no option '-x'; 'options --help' lists them"),
    ],
)
def test_what_is_refused(options, words, said):
    if said is None:
        assert options(*words) == ("1", "")
    else:
        assert options(*words) == ("-1", f"options: {said}\n")
