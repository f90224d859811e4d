// KernelFingerprint: the bits of a small fixed computation by the kernels that acting and training use. Equal
// where these give the same bits; an actor's hello carries it, so that a synchronous run, which promises
// bits, can refuse a CPU or a build that would change them. Station: before policy_runner. Pure, any thread;
// takes microseconds.
#pragma once

#include <cstdint>

namespace millrace {

uint64_t KernelFingerprint();

}  // namespace millrace
