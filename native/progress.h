// How far the workers have got with one submission. A launch is cut into pieces; any worker takes
// the next piece, and a launch is over when all its pieces are, not when all workers have come by.
// So a worker that the operating system took off its core delays the others by the piece it holds
// at most: on a machine with other work to do, the rest of the pool runs on without it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace helios {

class Progress {
 public:
  // For a submission of `launches` launches. No worker may be inside.
  void reset(std::size_t launches);

  // A worker may look at the counters only between enter() and leave(), and only if enter() says
  // that they still belong to `sequence`.
  bool enter(std::uint64_t sequence);
  void leave() { inside_.fetch_sub(1, std::memory_order_release); }

  // Opens the counters to workers of `sequence`, or closes them and waits for those inside.
  void open(std::uint64_t sequence) { sequence_.store(sequence, std::memory_order_seq_cst); }
  void close();

  // The next piece of a launch, at least `pieces` if there is none left. Index `launches` stands
  // for the end of the submission, which is one piece: whoever gets it completes the submission.
  std::uint32_t take(std::size_t launch, std::uint32_t pieces);
  void finish_piece(std::size_t launch, std::uint32_t pieces);
  // Waits until all pieces of a launch are finished: spins for a moment, then sleeps.
  void wait(std::size_t launch, std::uint32_t pieces);

 private:
  struct Counters {
    std::atomic<std::uint32_t> taken{0};
    std::atomic<std::uint32_t> finished{0};
  };

  std::unique_ptr<Counters[]> counters_;
  std::size_t capacity_ = 0;
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<std::uint32_t> inside_{0};
};

}  // namespace helios
