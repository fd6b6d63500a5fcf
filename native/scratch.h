// The workers' scratch: one block, a share for each worker, made before anything runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace helios {

class Scratch {
 public:
  // Makes every share at least `nbytes`. Nobody may be using the shares. Throws std::bad_alloc and
  // then leaves them as they were.
  void reserve(std::uint64_t nbytes, int workers) {
    if (nbytes <= share_) return;
    const std::uint64_t share = (nbytes + kPage - 1) / kPage * kPage;
    const std::uint64_t total = share * static_cast<std::uint64_t>(workers);
    memory_.reset(static_cast<std::byte*>(::operator new(total, std::align_val_t{kPage})));
    share_ = share;
    nbytes_ = total;
  }
  std::byte* of(int worker) const {
    return memory_.get() + share_ * static_cast<std::uint64_t>(worker);
  }
  std::uint64_t nbytes() const { return nbytes_; }

 private:
  // Shares begin on pages of their own: workers never write to the same cache line.
  static constexpr std::uint64_t kPage = 4096;

  struct Release {
    void operator()(std::byte* at) const { ::operator delete(at, std::align_val_t{kPage}); }
  };
  std::unique_ptr<std::byte, Release> memory_;
  std::uint64_t share_ = 0;
  std::uint64_t nbytes_ = 0;
};

}  // namespace helios
