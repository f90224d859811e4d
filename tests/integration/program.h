// The built program as a child process, and a look at what it leaves behind. For tests only.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/checkpoint.h"

namespace millrace {

namespace stdfs = std::filesystem;

struct Result {
  int code = -1;
  std::string output;  // standard output and error together
};

// A child process whose output is read to its end. Killed where a test is through before it is.
class Program {
 public:
  // `file_limit`: the largest file it may write, in bytes; what a full disk is like. `memory_limit`: its
  // address space, in bytes.
  explicit Program(const std::string& arguments, rlim_t file_limit = RLIM_INFINITY,
                   rlim_t memory_limit = RLIM_INFINITY) {
    std::vector<std::string> words = {MILLRACE_BINARY};
    for (auto word : absl::StrSplit(arguments, ' ', absl::SkipEmpty())) words.emplace_back(word);
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(fds[1], STDOUT_FILENO);
      dup2(fds[1], STDERR_FILENO);
      signal(SIGXFSZ, SIG_IGN);
      const rlimit limit = {file_limit, file_limit};
      setrlimit(RLIMIT_FSIZE, &limit);
      const rlimit memory = {memory_limit, memory_limit};
      setrlimit(RLIMIT_AS, &memory);
      std::vector<char*> argv;
      for (std::string& word : words) argv.push_back(word.data());
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(fds[1]);
    out_ = fds[0];
  }
  ~Program() {
    if (out_ < 0) return;
    Kill(SIGKILL);
    Finish();
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  pid_t pid() const { return pid_; }
  const std::string& output() const { return result_.output; }  // as far as it was read
  void Kill(int signal_number) const { kill(pid_, signal_number); }
  // Reads on until the output holds `text`; false when the program ends first, or takes too long.
  bool ReadUntil(const std::string& text) {
    while (result_.output.find(text) == std::string::npos) {
      if (!ReadMore()) return false;
    }
    return true;
  }
  // Waits for its end; one that takes too long is killed.
  Result Finish() {
    while (ReadMore()) {
    }
    close(out_);
    out_ = -1;
    int status = 0;
    waitpid(pid_, &status, 0);
    result_.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result_;
  }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr int kPatienceMs = 500'000;  // without a word; a sanitized program takes ten times as long
#else
  static constexpr int kPatienceMs = 120'000;  // without a word
#endif

  bool ReadMore() {
    pollfd fd = {out_, POLLIN, 0};
    if (poll(&fd, 1, kPatienceMs) <= 0) {
      result_.output += "\n(the test has lost patience)\n";
      Kill(SIGKILL);
      return false;
    }
    char chunk[4096];
    const ssize_t n = read(out_, chunk, sizeof chunk);
    if (n > 0) result_.output.append(chunk, static_cast<size_t>(n));
    return n > 0;
  }

  pid_t pid_ = -1;
  int out_ = -1;
  Result result_;
};

inline Result Mill(const std::string& arguments) {
  return Program(arguments).Finish();
}

inline std::string FreshDir(const std::string& name) {
  const std::string dir =
      absl::StrCat(testing::TempDir(), "program-", getpid(), "-", name);  // tests run side by side
  stdfs::remove_all(dir);
  return dir;
}

inline std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::vector<std::string> Checkpoints(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : stdfs::directory_iterator(dir + "/checkpoints")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("update-") && name.ends_with(".safetensors")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The tensors of a checkpoint, without its metadata (which holds times).
inline std::string Tensors(const std::string& path) {
  PosixFileSystem fs;
  const auto checkpoint = LoadCheckpoint(fs, path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  std::string all;
  for (const NamedTensor& tensor : checkpoint->content.tensors) {
    absl::StrAppend(&all, tensor.name, " ");
    all.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  return all;
}

}  // namespace millrace
