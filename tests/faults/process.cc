#include "tests/faults/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "common/status.h"
#include "common/text.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

// Nothing between fork and exec may allocate: other threads of the test may hold the allocator's lock.
[[noreturn]] void Become(char** argv, char** environment, int output, rlim_t largest_file) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit = {largest_file, largest_file};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  ::execve(argv[0], argv, environment);
  ::_exit(127);
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> Environment(const std::map<std::string, std::string>& more) {
  std::vector<std::string> all;
  for (const auto& [name, value] : more) all.push_back(Cat(name, "=", value));
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (more.find(text.substr(0, text.find('='))) == more.end()) all.push_back(text);
  }
  return all;
}

}  // namespace

Process::Process(std::vector<std::string> words, const Options& options) {
  int fds[2];
  MILL_CHECK(::pipe2(fds, O_CLOEXEC) == 0);
  std::vector<std::string> environment = Environment(options.environment);
  const std::vector<char*> argv = Pointers(words), envp = Pointers(environment);
  pid_ = ::fork();
  MILL_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    Become(const_cast<char**>(argv.data()), const_cast<char**>(envp.data()), fds[1], options.largest_file);
  }
  ::close(fds[1]);
  reader_ = std::thread([this, fd = fds[0]] { Read(fd); });
  waiter_ = std::thread([this] { AwaitEnd(); });
}

Process::~Process() {
  Signal(SIGKILL);
  waiter_.join();
  reader_.join();
}

void Process::Read(int fd) {
  char buffer[4096];
  while (true) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    MutexLock lock(mutex_);
    if (n <= 0) {
      read_all_ = true;
    } else {
      output_.append(buffer, static_cast<size_t>(n));
    }
    changed_.NotifyAll();
    if (n <= 0) break;
  }
  ::close(fd);
}

// The id stays this child's until it is reaped under the lock, so Signal never meets another process.
void Process::AwaitEnd() {
  siginfo_t info;
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  MutexLock lock(mutex_);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  changed_.NotifyAll();
}

void Process::Signal(int signal_number) {
  MutexLock lock(mutex_);
  if (!code_) ::kill(pid_, signal_number);
}

void Process::Kill() {
  Signal(SIGKILL);
  static_cast<void>(WaitForEnd());
}

bool Process::running() const {
  MutexLock lock(mutex_);
  return !code_;
}

std::string Process::output() const {
  MutexLock lock(mutex_);
  return output_;
}

std::optional<std::string> Process::WaitForLine(const std::string& text, std::chrono::milliseconds deadline) {
  const auto until = Clock::now() + deadline;
  MutexLock lock(mutex_);
  while (true) {
    const size_t at = output_.find(text);
    const size_t end = at == std::string::npos ? at : output_.find('\n', at);
    if (end != std::string::npos) {
      const size_t before = output_.rfind('\n', at);
      const size_t begin = before == std::string::npos ? 0 : before + 1;
      return output_.substr(begin, end - begin);
    }
    const auto left = until - Clock::now();
    if (read_all_ || left <= left.zero()) return std::nullopt;
    changed_.WaitFor(mutex_, left);
  }
}

std::optional<int> Process::WaitForEnd(std::chrono::milliseconds deadline) {
  const auto until = Clock::now() + deadline;
  MutexLock lock(mutex_);
  while (!code_ || !read_all_) {
    const auto left = until - Clock::now();
    if (left <= left.zero()) return std::nullopt;
    changed_.WaitFor(mutex_, left);
  }
  return code_;
}

size_t Process::resident_bytes() const {
  std::ifstream in(Cat("/proc/", pid_, "/statm"));
  size_t total = 0, resident = 0;
  in >> total >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace millrace
