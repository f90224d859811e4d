#include "common/rpc/unix_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>

#include "common/testing/temp_dir.h"
#include "common/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

struct Pair {
  UniqueFd a, b;
  Pair() {
    int fds[2];
    MILL_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    a.Reset(fds[0]);
    b.Reset(fds[1]);
  }
};

void WriteAll(int fd, std::string_view bytes) {
  ASSERT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

void WriteFrame(int fd, std::string message, std::string_view payload = {}, UniqueFd passed = {}) {
  FrameWriter writer(std::move(message), payload, std::move(passed));
  while (true) {
    const StatusOr<bool> done = writer.Step(fd);
    ASSERT_TRUE(done.ok()) << done.status();
    if (*done) return;
    ASSERT_TRUE(WaitFor(fd, POLLOUT, std::chrono::steady_clock::now() + seconds(20)).value_or(false));
  }
}

// The next whole frame, waited for.
StatusOr<std::string> ReadFrame(FrameReader& reader, int fd) {
  while (true) {
    MILL_ASSIGN_OR_RETURN(const auto frame, reader.Next());
    if (frame) {
      std::string bytes(frame->bytes);
      reader.Pop();
      return bytes;
    }
    MILL_ASSIGN_OR_RETURN(const bool ready,
                          WaitFor(fd, POLLIN, std::chrono::steady_clock::now() + seconds(20)));
    if (!ready) return absl::DeadlineExceededError("nothing came");
    MILL_RETURN_IF_ERROR(reader.Fill(fd).status());
  }
}

FrameReader Reader(size_t max = 1 << 20, bool descriptors = false) {
  return FrameReader({max, max, descriptors});
}

TEST(UnixSocket, OnlyItsUserMayOpenIt) {
  TempDir dir;
  const std::string path = dir.File("s");
  const auto listener = ListenUnix(path);
  ASSERT_TRUE(listener.ok()) << listener.status();
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_TRUE(absl::IsAlreadyExists(ListenUnix(path).status()));

  const auto client = ConnectUnix(path, seconds(5));
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(PeerOf(client->get())->uid, ::geteuid());
  EXPECT_EQ(PeerOf(client->get())->pid, ::getpid());
  EXPECT_NE(::fcntl(client->get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_NE(::fcntl(client->get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST(UnixSocket, NobodyListens) {
  TempDir dir;
  const Status missing = ConnectUnix(dir.File("s"), seconds(1)).status();
  EXPECT_TRUE(absl::IsUnavailable(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()), HasSubstr(dir.File("s")));
  ASSERT_TRUE(ListenUnix(dir.File("s")).ok());  // and closed again: the path stays
  EXPECT_TRUE(absl::IsUnavailable(ConnectUnix(dir.File("s"), seconds(1)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ListenUnix(std::string(108, 'a')).status()));
}

// Nobody accepts, and the queue is full: connecting ends by its deadline.
TEST(UnixSocket, ConnectingEndsInTime) {
  TempDir dir;
  const auto listener = ListenUnix(dir.File("s"));
  ASSERT_TRUE(listener.ok());
  ASSERT_EQ(::listen(listener->get(), 0), 0);
  const auto first = ConnectUnix(dir.File("s"), seconds(1));
  ASSERT_TRUE(first.ok()) << first.status();
  const Status late = ConnectUnix(dir.File("s"), milliseconds(20)).status();
  EXPECT_TRUE(absl::IsUnavailable(late)) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("in time"));
}

TEST(Frames, KeepTheirBounds) {
  Pair pair;
  FrameReader reader = Reader();
  std::thread writer([&] {
    WriteFrame(pair.a.get(), "one");
    WriteFrame(pair.a.get(), "");
    WriteFrame(pair.a.get(), std::string(900'000, 'x'), "payload");
    WriteFrame(pair.a.get(), "four");
  });
  EXPECT_EQ(*ReadFrame(reader, pair.b.get()), "one");
  EXPECT_EQ(*ReadFrame(reader, pair.b.get()), "");
  EXPECT_EQ(*ReadFrame(reader, pair.b.get()), std::string(900'000, 'x') + "payload");
  EXPECT_EQ(*ReadFrame(reader, pair.b.get()), "four");
  EXPECT_TRUE(reader.idle());
  writer.join();
}

TEST(Frames, SeveralLeaveAtOnce) {
  Pair pair;
  FrameReader reader = Reader();
  FrameWriter writer("one");
  EXPECT_TRUE(writer.Append("two"));
  EXPECT_TRUE(writer.Append(""));
  EXPECT_EQ(writer.bytes(), 3u * 4 + 6);
  ASSERT_TRUE(*writer.Step(pair.a.get()));
  EXPECT_FALSE(writer.Append("too late"));
  for (const char* message : {"one", "two", ""}) EXPECT_EQ(*ReadFrame(reader, pair.b.get()), message);
  EXPECT_FALSE(FrameWriter("with", "payload").Append("x"));
}

TEST(Frames, ComeByteByByte) {
  Pair pair;
  FrameReader reader = Reader();
  const std::string bytes("\x03\0\0\0abc\x01\0\0\0d", 12);
  std::string got;
  for (const char byte : bytes) {
    WriteAll(pair.a.get(), std::string_view(&byte, 1));
    ASSERT_TRUE(*reader.Fill(pair.b.get()));
    while (true) {
      const auto frame = reader.Next();
      ASSERT_TRUE(frame.ok());
      if (!*frame) break;
      CatTo(got, (*frame)->bytes, ";");
      reader.Pop();
    }
  }
  EXPECT_EQ(got, "abc;d;");
  EXPECT_FALSE(*reader.Fill(pair.b.get())) << "nothing is there";
}

TEST(Frames, AnEndInTheMiddleIsUnavailable) {
  Pair pair;
  FrameReader reader = Reader();
  WriteAll(pair.a.get(), std::string_view("\x03\0\0\0ab", 6));
  pair.a.Reset();
  const Status end = ReadFrame(reader, pair.b.get()).status();
  EXPECT_TRUE(absl::IsUnavailable(end)) << end;
  EXPECT_FALSE(reader.idle());
  FrameWriter writer("to nobody");
  EXPECT_TRUE(absl::IsUnavailable(writer.Step(pair.b.get()).status())) << "and no SIGPIPE";
}

TEST(Frames, TooLong) {
  Pair pair;
  FrameReader reader = Reader(1000);
  WriteAll(pair.a.get(), std::string_view("\xe9\x03\0\0", 4));
  const Status refused = ReadFrame(reader, pair.b.get()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("1001 bytes; at most 1000"));
}

// A long frame is shown by its head; what follows goes where the caller wants it.
TEST(Frames, ALongOneIsShownByItsHead) {
  Pair pair;
  FrameReader reader({100, 1 << 20, false});
  const std::string body(50'000, 'y');
  std::thread writer([&] {
    WriteFrame(pair.a.get(), "head", body);
    WriteFrame(pair.a.get(), "next");
  });
  std::optional<FrameReader::Frame> frame;
  while (!frame) {
    ASSERT_TRUE(*WaitFor(pair.b.get(), POLLIN, std::chrono::steady_clock::now() + seconds(20)));
    ASSERT_TRUE(reader.Fill(pair.b.get()).ok());
    frame = *reader.Next();
  }
  EXPECT_EQ(frame->total, 50'004u);
  ASSERT_GE(frame->bytes.size(), 100u);
  std::string all(frame->bytes);
  reader.Pop();
  const size_t here = all.size();
  all.resize(50'004);
  for (size_t at = here; at < all.size();) {
    ASSERT_TRUE(*WaitFor(pair.b.get(), POLLIN, std::chrono::steady_clock::now() + seconds(20)));
    at += *ReadSome(pair.b.get(), all.data() + at, all.size() - at);
  }
  EXPECT_EQ(all, "head" + body);
  EXPECT_EQ(*ReadFrame(reader, pair.b.get()), "next");
  writer.join();
}

TEST(Frames, ADescriptorComesWithItsFrame) {
  Pair pair, passed;
  FrameReader reader = Reader(1 << 20, true);
  WriteFrame(pair.a.get(), "before");
  WriteFrame(pair.a.get(), "with", {}, std::move(passed.a));
  WriteFrame(pair.a.get(), "after");
  EXPECT_EQ(*ReadFrame(reader, pair.b.get()), "before");
  EXPECT_EQ(*ReadFrame(reader, pair.b.get()), "with");
  const UniqueFd fd = reader.TakeDescriptor();
  ASSERT_TRUE(fd);
  EXPECT_FALSE(reader.TakeDescriptor());
  EXPECT_NE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  WriteFrame(fd.get(), "through it");
  FrameReader other = Reader();
  EXPECT_EQ(*ReadFrame(other, passed.b.get()), "through it");
  EXPECT_EQ(*ReadFrame(reader, pair.b.get()), "after");
}

// Whoever did not ask for descriptors never holds one, and whoever did holds few.
TEST(Frames, DescriptorsThatNobodyWants) {
  Pair pair, passed;
  FrameReader deaf = Reader();
  WriteFrame(pair.a.get(), "x", {}, UniqueFd(::dup(passed.a.get())));
  EXPECT_EQ(*ReadFrame(deaf, pair.b.get()), "x");
  EXPECT_FALSE(deaf.TakeDescriptor());

  FrameReader reader = Reader(1 << 20, true);
  Status status;
  for (int i = 0; i < 10 && status.ok(); ++i) {
    WriteFrame(pair.a.get(), "x", {}, UniqueFd(::dup(passed.a.get())));
    status = ReadFrame(reader, pair.b.get()).status();
  }
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

TEST(WaitFor, IsEndedByShutdown) {
  Pair pair;
  std::thread waiter([&] { EXPECT_TRUE(*WaitFor(pair.a.get(), POLLIN, std::nullopt)); });
  ::shutdown(pair.a.get(), SHUT_RDWR);
  waiter.join();
  Pair quiet;
  EXPECT_FALSE(*WaitFor(quiet.a.get(), POLLIN, std::chrono::steady_clock::now() + milliseconds(5)));
}

}  // namespace
}  // namespace millrace
