// Queueing and walking behind replayer.h.
#include "replayer.h"

#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

namespace helios {
namespace {

// Idle workers spin this long for the next submission; a host that waits for a completion less,
// because it would take a core from the workers.
constexpr std::chrono::nanoseconds kIdleSpin = std::chrono::microseconds(50);
constexpr std::chrono::nanoseconds kHostSpin = std::chrono::microseconds(5);

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int checked_threads(int threads) {
  if (threads < 1 || threads > 1024) {
    throw std::invalid_argument("threads must lie between 1 and 1024, " +
                                std::to_string(threads) + " given");
  }
  return threads;
}

}  // namespace

Replayer::Replayer(int threads, std::string_view instruction_set)
    : table_(kernel_table(instruction_set)),
      threads_(checked_threads(threads)) {
  try {
    pool_.start(threads_, [this](int worker) { work(worker); });
  } catch (const std::system_error& error) {
    close();
    throw std::runtime_error("can't start " + std::to_string(threads_) +
                             " threads: " + error.what());
  }
}

int Replayer::add_program(const LaunchList& list) {
  const std::lock_guard lock(host_);
  if (submitted_count_ != completed()) {
    throw std::runtime_error("a program can't be added while a submission is outstanding");
  }
  auto program = std::make_unique<Program>(list, table_, threads_);
  const std::uint64_t nbytes = program->scratch_nbytes();
  try {
    scratch_.reserve(nbytes, threads_);
  } catch (const std::bad_alloc&) {
    throw std::runtime_error("no memory for " + std::to_string(nbytes) +
                             " bytes of scratch for each of " + std::to_string(threads_) +
                             " threads");
  }
  programs_.push_back(std::move(program));
  return static_cast<int>(programs_.size()) - 1;
}

void Replayer::submit(int program, std::uint64_t sequence) {
  const std::lock_guard lock(host_);
  if (end_.load(std::memory_order_relaxed) != ~std::uint64_t{0}) {
    throw std::runtime_error("the replayer is closed");
  }
  if (program < 0 || static_cast<std::size_t>(program) >= programs_.size()) {
    throw std::invalid_argument("program " + std::to_string(program) + " isn't registered");
  }
  if (sequence != submitted_count_ + 1) {
    throw std::invalid_argument("sequence " + std::to_string(submitted_count_ + 1) +
                                " comes next, " + std::to_string(sequence) + " given");
  }
  if (sequence - completed() > kRing) {
    throw std::runtime_error("256 submissions are outstanding; wait for one to complete");
  }
  Submission& submission = ring_[sequence % kRing];
  submission.progress.close();
  submission.program = programs_[static_cast<std::size_t>(program)].get();
  submission.progress.reset(submission.program->size(), threads_);
  submission.progress.open(sequence);
  submitted_count_ = sequence;
  submitted_.raise(sequence);
}

bool Replayer::wait(std::uint64_t sequence, std::chrono::milliseconds limit) {
  return completed_.wait_for(sequence, kHostSpin, limit);
}

std::pair<std::int64_t, std::int64_t> Replayer::timing(std::uint64_t sequence) const {
  const std::lock_guard lock(host_);
  if (sequence == 0 || sequence > completed() || sequence + kRing <= submitted_count_) {
    throw std::invalid_argument("sequence " + std::to_string(sequence) +
                                " isn't one of the last 256 that have completed");
  }
  const Submission& submission = ring_[sequence % kRing];
  return {submission.start_ns, submission.end_ns};
}

void Replayer::close() {
  {
    const std::lock_guard lock(host_);
    if (end_.load(std::memory_order_relaxed) == ~std::uint64_t{0}) {
      end_.store(submitted_count_, std::memory_order_release);
      submitted_.raise(submitted_count_ + 1);
    }
  }
  // A thread may be joined once only.
  const std::lock_guard lock(joining_);
  pool_.join();
}

void Replayer::work(int worker) {
  for (std::uint64_t sequence = 1;; ++sequence) {
    submitted_.wait(sequence, kIdleSpin);
    if (sequence > end_.load(std::memory_order_acquire)) return;
    Submission& submission = ring_[sequence % kRing];
    // False for a worker so late that others have finished the submission and its place is reused.
    if (!submission.progress.enter(sequence)) continue;
    // While this submission has pieces left, no program is added: the shares stay where they are.
    run(submission, sequence, worker);
    submission.progress.leave();
    // Completions are announced in order, so the next submission waits for this one's.
    completed_.wait(sequence, kIdleSpin);
  }
}

void Replayer::run(Submission& submission, std::uint64_t sequence, int worker) {
  const Program& program = *submission.program;
  Progress& progress = submission.progress;
  for (std::size_t i = 0; i < program.size(); ++i) {
    const std::uint32_t pieces = program.pieces(i);
    std::uint32_t mine = 0;
    for (;; ++mine) {
      const std::uint32_t piece = progress.take(i, worker, pieces);
      if (piece >= pieces) break;
      if (piece == 0) {
        if (i == 0) submission.start_ns = now_ns();
        launches_.fetch_add(1, std::memory_order_relaxed);
      }
      program.kernel(i).function(program.launch(i), {static_cast<int>(piece),
                                                     static_cast<int>(pieces), scratch_.of(worker)});
    }
    if (mine > 0) progress.finish(i, worker, mine);
    progress.wait(i, pieces);
  }
  if (progress.take(program.size(), worker, 1) != 0) return;
  if (program.size() == 0) submission.start_ns = now_ns();
  submission.end_ns = now_ns();
  completed_.raise(sequence);
}

}  // namespace helios
