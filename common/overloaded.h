// Overloaded: one visitor of several lambdas, for std::visit. No state; any thread.
#pragma once

namespace millrace {

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

}  // namespace millrace
