#!/usr/bin/env python3
"""Each check of check.py finds a tree that breaks its rule, and passes one that keeps it."""

import pathlib
import tempfile
import unittest

import check


class CheckTest(unittest.TestCase):
    def findings(self, name, tree):
        """The messages of one check for a tree given as {path: text}."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in tree.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text, encoding="utf-8")
            return [f"{path}:{number}: {what}" for path, number, what in check.CHECKS[name](root)]

    def assert_finds(self, name, path, text, **others):
        found = self.findings(name, {path: text, **others})
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(path + ":"), found)

    def assert_passes(self, name, path, text):
        self.assertEqual(self.findings(name, {path: text}), [])

    def test_layers(self):
        forbidden = {"common": ["kernels", "actor", "learner", "cli"], "kernels": ["actor", "learner", "cli"],
                     "actor": ["learner", "cli"], "learner": ["actor", "cli"], "cli": []}
        for layer in forbidden:
            for target in forbidden:
                text = f'#include "{target}/x.h"\n'
                if target in forbidden[layer]:
                    self.assert_finds("includes", f"{layer}/a/b.cc", text)
                else:
                    self.assert_passes("includes", f"{layer}/a/b.cc", text)
            self.assert_passes("includes", "tests/integration/a_test.cc", f'#include "{layer}/x.h"\n')

    def test_include_is_seen_in_every_spelling(self):
        for line in ('#include <learner/x.h>', '  #  include "learner/x.h"  // why', '#include"learner/x.h"'):
            self.assert_finds("includes", "actor/a.h", f"// A.\n{line}\n")
        self.assert_passes("includes", "actor/a.h", '// #include "learner/x.h"\n')

    def test_paths_from_the_root(self):
        self.assert_finds("includes", "actor/a.cc", '#include "../common/x.h"\n')
        self.assert_finds("includes", "actor/a.cc", '#include "a.h"\n', **{"actor/a.h": "// A.\n"})

    def test_cuda_headers(self):
        for header in ("cuda_runtime.h", "cublasLt.h", "nccl.h", "cub/cub.cuh", "cooperative_groups.h"):
            line = f"#include <{header}>\n"
            self.assert_finds("includes", "kernels/device/device.cc", line)
            self.assert_finds("includes", "learner/cuda/a.cc", line)
            self.assert_passes("includes", "kernels/device/cuda/stream.cc", line)
            self.assert_passes("includes", "kernels/gemm/gemm_cublaslt.cc", line)
            self.assert_passes("includes", "kernels/ops/gae.cu", line)

    def test_generated_headers(self):
        for header in ("google/protobuf/message.h", "grpcpp/grpcpp.h", "millrace/v1/config.pb.h"):
            line = f"#include <{header}>\n"
            self.assert_finds("includes", "learner/trajectory_service.cc", line)
            self.assert_passes("includes", "learner/trajectory_service_grpc.cc", line)
            self.assert_passes("includes", "learner/trajectory_service_grpc_test.cc", line)
            self.assert_passes("includes", "common/config/reader.cc", line)
            self.assert_passes("includes", "common/rpc/channel.h", line)

    def test_heads(self):
        self.assert_finds("heads", "common/a.h", "#pragma once\n")
        self.assert_finds("heads", "common/a.h", "// A.\n")
        self.assert_passes("heads", "common/a.h", "// A.\n#pragma once\n")

    def test_length(self):
        self.assert_finds("length", "common/a.cc", "\n" * (check.MAX_LINES + 1))
        self.assert_finds("length", "mill", "\n" * (check.MAX_LINES + 1))
        self.assert_passes("length", "common/a.cc", "\n" * check.MAX_LINES)

    def test_words(self):
        for word in ("TO" "DO", "fix" "me", "for " "now", "place" "holder", "/ro" "ot/x"):
            self.assert_finds("words", "common/a.cc", f"// see {word}: later\n")
        self.assert_passes("words", "common/a.cc", "// todos, nowhere, /roots/x\n")

    def test_readme(self):
        tree = {"cli/presets/cartpole.yaml": "", "README.md": "    ./mill train cartpole\n    ./mill test\n"}
        self.assertEqual(self.findings("readme", tree), [])
        for line in ("./mill train nothing", "./mill tarin cartpole", "millrace evaluate x"):
            self.assertEqual(len(self.findings("readme", tree | {"README.md": f"    {line}\n"})), 1, line)

    def test_settings(self):
        proto = ("message FieldRule {\n  optional double min = 1;\n}\n"
                 "message RunConfig {\n  reserved 9 to 31;  // later\n"
                 "  // What learns: ppo. Default ppo. Read often.\n"
                 "  optional string algorithm = 1;\n  PpoSection ppo = 5;\n}\n"
                 "message PpoSection {\n  // Passes. Default 10.\n"
                 "  optional uint32 epochs = 3 [(rule) = {min: 1}];\n"
                 "  // Empty: none.\n  // Default {}.\n  map<string, string> params = 4;\n}\n")
        rows = ["| `algorithm` | `ppo` | | |", "| `ppo.epochs` | `10` | | of `ppo.params` |",
                "| `ppo.params` | `{}` | | |"]
        page = "\n".join(["| key | default | | |", "|---|---|---|---|", *rows,
                          "`--set ppo.epochs=4`, see `other.md`", ""])
        tree = {"proto/millrace/v1/config.proto": proto, "docs/settings.md": page}
        self.assertEqual(self.findings("settings", tree), [])
        broken = {
            page.replace(rows[1] + "\n", ""): "ppo.epochs has no row",
            page.replace(rows[0] + "\n", ""): "algorithm has no row",
            page + "| `ppo.clip` | `1` | | |\n": "no such setting: ppo.clip",
            page + "| `more` | `1` | | |\n": "no such setting: more",
            page + "As `ppo.epoch=1` says.\n": "no such setting: ppo.epoch",
            page + rows[2] + "\n": "a second row for ppo.params",
            page.replace("`10`", "`11`"): "ppo.epochs: the default is 10, not 11",
        }
        for text, message in broken.items():
            found = self.findings("settings", tree | {"docs/settings.md": text})
            self.assertEqual(len(found), 1, (message, found))
            self.assertIn(message, found[0])
        later = proto.replace("  // Empty", "  // Default 1.\n  optional double clip = 9;\n  // Empty")
        found = self.findings("settings", tree | {"proto/millrace/v1/config.proto": later})
        self.assertEqual(len(found), 1, found)
        self.assertIn("ppo.clip has no row", found[0])


if __name__ == "__main__":
    unittest.main()
