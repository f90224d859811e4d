// Proxy: a TCP proxy on loopback that a test puts between actors and their learner and then misuses: it
// delays, throttles, cuts, stalls and damages what passes. It knows bytes only, no protocol. Owner: the test.
// Station: on the wire, in tests alone.
//
// Threads: one of its own moves the bytes; every command may be given from any thread and holds for all
// connections, also for later ones, unless it says otherwise. Each direction of a connection buffers at most
// kBufferBytes, so a side that does not read stops the other.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/status.h"

namespace millrace {

class Proxy {
 public:
  enum class Direction : uint8_t { kUp, kDown };  // from the client to the server, and back
  enum class Cut : uint8_t { kFin, kReset };
  static constexpr size_t kBufferBytes = size_t{256} << 10;

  // Listens on a free port of loopback and connects each client to `port` there. Unavailable with errno's
  // text when it can't.
  static StatusOr<std::unique_ptr<Proxy>> Start(uint16_t port);
  ~Proxy();

  std::string address() const;  // host:port, where clients connect

  // Where later clients are connected to: a learner that began anew has another port.
  void SetTarget(uint16_t port);

  // What is read from now on is held back for so long.
  void Delay(Direction direction, std::chrono::milliseconds delay);
  // Bytes a second of each connection; 0: as fast as they come.
  void Throttle(Direction direction, uint64_t bytes_per_second);

  // Ends the connections of this moment on both sides: in order, or with a reset.
  void CutAll(Cut how);
  // The connections of this moment stay open but nothing passes any more; what comes later is served.
  void StallPresent();
  // While on, new clients are accepted and reset at once.
  void Refuse(bool refuse);

  // One bit of the byte that comes `after` bytes from now, in all connections together, is inverted; with
  // `every` > 0 another one after each so many.
  void FlipBit(Direction direction, uint64_t after, uint64_t every = 0);
  void StopFlipping();

  struct Counts {
    uint64_t accepted = 0, open = 0, stalled = 0;  // connections; stalled ones are open as well
    uint64_t bytes_up = 0, bytes_down = 0;         // read
    uint64_t flipped = 0;
  };
  Counts counts() const;

 private:
  class Impl;
  explicit Proxy(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
