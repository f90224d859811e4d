#!/usr/bin/env python3
"""What ./mill does in which order, with every tool that it calls replaced by one that writes down its call."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

MILL = pathlib.Path(__file__).resolve().parents[2] / "mill"
SHELL_TOOLS = ("bash cat chmod clang-format-14 dirname env find flock grep head mkdir mv nproc readlink rm sed sort touch tr "
               "uname").split()

# Each writes `name arguments` into $FAKE/log first. A file $FAKE/fail-NAME makes the next call of NAME fail.
FAKES = {
    "dpkg-query": '[[ -f $FAKE/installed ]] && sed "s/$/ ii /" "$FAKE/installed"',
    "dpkg": "",
    "apt-get": 'for a in "$@"; do [[ $a == -* || $a == install || $a == update ]] || echo "$a"; done >>"$FAKE/installed"',
    "cmake": """
preset=; tests=; march=
while [[ $# -gt 0 ]]; do
  case $1 in --preset) preset=$2 ;; -DMILLRACE_TESTS=*) tests=${1#*=} ;; -DMILLRACE_MARCH=*) march=${1#*=} ;; esac
  shift
done
mkdir -p "build/$preset"
printf '%s\\n' "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "MILLRACE_TESTS:BOOL=$tests" "MILLRACE_MARCH:STRING=$march" \
  >"build/$preset/CMakeCache.txt"
touch "build/$preset/build.ninja\"""",
    "ninja": """
printf '#!/bin/bash\\necho "ran in $PWD:"; printf "[%%s]" "$@"\\n' >"$2/millrace"; chmod +x "$2/millrace\"""",
    "ctest": "",
}


class MillTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="mill test ")
        self.addCleanup(self.folder.cleanup)
        self.home = pathlib.Path(self.folder.name)
        self.checkout = self.home / "check out"
        self.bin = self.home / "bin"
        self.bin.mkdir()
        for name in ("cmake", "common", "kernels", "actor", "learner", "cli", "proto"):
            (self.checkout / name).mkdir(parents=True)
        for name in ("CMakeLists.txt", "CMakePresets.json", "common/a.cc"):
            (self.checkout / name).touch()
        shutil.copy(MILL, self.checkout / "mill")
        for name in SHELL_TOOLS:
            if found := shutil.which(name):
                (self.bin / name).symlink_to(found)
        for name, body in FAKES.items():
            script = self.bin / name
            script.write_text(f"#!/bin/bash\nname={name}\necho \"$name $*\" >>\"$FAKE/log\"\n"
                              f"if [[ -f $FAKE/fail-$name ]]; then rm \"$FAKE/fail-$name\"; exit 1; fi\n{body}\n")
            script.chmod(0o755)
        # As a user who is not root would have it.
        (self.bin / "sudo").write_text("#!/bin/bash\nexec \"$@\"\n")
        (self.bin / "sudo").chmod(0o755)

    def mill(self, *arguments, march=None, code=0):
        """Runs mill; returns its stdout, stderr, and the calls of this run, a line each."""
        log = self.home / "log"
        log.write_text("")
        environment = {"PATH": str(self.bin), "FAKE": str(self.home), "HOME": str(self.home)}
        if march:
            environment["MILL_MARCH"] = march
        done = subprocess.run([self.checkout / "mill", *arguments], cwd=self.home, env=environment, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout, done.stderr, log.read_text().splitlines()

    def called(self, calls, name):
        return [call for call in calls if call.split()[0] == name]

    def test_no_install_only_tells(self):
        _, said, calls = self.mill("train", "cartpole", "--no-install", code=2)
        self.assertIn("apt-get install --no-install-recommends", said)
        self.assertIn("libyaml-cpp-dev", said)
        self.assertNotIn("libgtest-dev", said)
        self.assertEqual(self.called(calls, "apt-get") + self.called(calls, "cmake"), [])

    def test_installs_builds_and_runs(self):
        out, said, calls = self.mill("train", "cartpole", "--set", "a=b c")
        self.assertEqual(out, f"ran in {self.home}:\n[train][cartpole][--set][a=b c]")
        self.assertIn("installing", said)
        self.assertTrue(self.called(calls, "dpkg"), "what an interrupted dpkg left comes first")
        self.assertIn("-DMILLRACE_TESTS=OFF", self.called(calls, "cmake")[0])
        self.assertTrue(self.called(calls, "ninja")[0].endswith("build/release millrace"))

    def test_a_built_tree_starts_at_once(self):
        self.mill("train")
        out, said, calls = self.mill("eval", "x")
        self.assertTrue(out.endswith("[eval][x]"))
        self.assertEqual((said, calls), ("", []))

    def test_a_change_builds_without_configuring(self):
        self.mill("train")
        for change in (lambda: (self.checkout / "common/a.cc").write_text("x"),
                       lambda: os.utime(self.checkout / "common/a.cc", (0, 0)),  # as a copy with its old date
                       lambda: (self.checkout / "cli/new.cc").touch(),
                       lambda: (self.checkout / "cli/new.cc").unlink(),
                       lambda: (self.checkout / "build/release/millrace").unlink()):
            change()
            _, _, calls = self.mill("train")
            self.assertEqual([len(self.called(calls, name)) for name in ("ninja", "cmake", "apt-get")], [1, 0, 0])
        self.assertEqual(self.mill("train")[2], [])

    def test_goes_on_after_each_failure(self):
        for name, code in (("cmake", 2), ("ninja", 1)):
            (self.home / f"fail-{name}").touch()
            self.mill("train", code=code)
        _, _, calls = self.mill("train")
        self.assertEqual([len(self.called(calls, name)) for name in ("ninja", "cmake", "apt-get")], [1, 0, 0])

    def test_a_failed_update_of_the_lists_is_said_and_survived(self):
        (self.home / "fail-apt-get").touch()
        self.assertIn("update failed", self.mill("train")[1])

    def test_a_configuration_that_did_not_end_is_redone(self):
        (self.home / "fail-cmake").touch()
        self.mill("train", code=2)
        self.assertIn("--fresh", self.called(self.mill("train")[2], "cmake")[0])

    def test_a_checkout_that_moved_is_configured_anew(self):
        self.mill("train")
        moved = self.checkout.rename(self.home / "moved")
        self.checkout = moved
        _, _, calls = self.mill("train")
        self.assertIn("--fresh", self.called(calls, "cmake")[0])

    def test_tests_keep_what_was_built(self):
        self.mill("train")
        _, _, calls = self.mill("test", "-R", "Gae")
        cmake, ctest = self.called(calls, "cmake")[0], self.called(calls, "ctest")[0]
        self.assertIn("-DMILLRACE_TESTS=ON", cmake)
        self.assertNotIn("--fresh", cmake)
        self.assertTrue(ctest.startswith("ctest --preset release") and ctest.endswith("-R Gae"), ctest)
        (self.checkout / "common/a.cc").write_text("x")
        self.assertEqual(self.called(self.mill("train")[2], "cmake"), [])

    def test_several_presets_end_at_the_first_that_fails(self):
        _, _, calls = self.mill("test", "asan", "tsan")
        self.assertEqual([call.split()[2] for call in self.called(calls, "ctest")], ["asan", "tsan"])
        (self.home / "fail-ctest").touch()
        _, _, calls = self.mill("test", "asan", "tsan", code=1)
        self.assertEqual([call.split()[2] for call in self.called(calls, "ctest")], ["asan"])

    def test_another_cpu_stays_chosen(self):
        self.mill("train", march="x86-64-v2")
        (self.checkout / "common/a.cc").write_text("x")
        self.assertEqual(self.called(self.mill("train")[2], "cmake"), [])
        self.assertIn("-DMILLRACE_MARCH=native", self.called(self.mill("train", march="native")[2], "cmake")[0])

    def test_wrong_words_are_named(self):
        for arguments in (("test", "bogus"), ("build", "bogus"), ("install", "bogus"), ("format", "bogus")):
            self.assertIn("bogus" if arguments[0] != "format" else "--check", self.mill(*arguments, code=2)[1])

    def test_without_apt(self):
        for name in ("apt-get", "cmake"):
            (self.bin / name).unlink()
        _, said, _ = self.mill("train", code=2)
        self.assertIn("no apt", said)
        self.assertIn("cmake", said)


if __name__ == "__main__":
    unittest.main()
