// The Python face of the native library: src/helios/_native.pyi describes it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <unistd.h>

#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>

#include "catalogue.h"
#include "dispatch.h"
#include "replayer.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
std::span<const T> view(const Array<T>& array) {
  return {array.data(), array.size()};
}

std::vector<std::string> names(std::span<const char* const> values) {
  return {values.begin(), values.end()};
}

using Names = std::vector<std::string>;

std::vector<std::tuple<std::string, Names, Names, Names>> catalogue() {
  std::vector<std::tuple<std::string, Names, Names, Names>> result;
  for (const helios::KernelSpec& spec : helios::catalogue()) {
    result.emplace_back(spec.name, names(spec.operands), names(spec.integers),
                        names(spec.floats));
  }
  return result;
}

// A replayer as Python holds it. In a forked child the threads are gone and what they held stays
// locked: there it refuses all work, and is neither closed nor destroyed.
class RegisteredReplayer {
 public:
  RegisteredReplayer(int threads, const std::string& instruction_set);
  ~RegisteredReplayer();
  RegisteredReplayer(const RegisteredReplayer&) = delete;
  RegisteredReplayer& operator=(const RegisteredReplayer&) = delete;

  helios::Replayer& here() {
    if (is_forked()) {
      throw std::runtime_error("the replayer belongs to process " + std::to_string(owner_) +
                               ", of which this one is a fork");
    }
    return *replayer_;
  }
  // Ends the threads. Without the GIL: what is queued may take long.
  void close_threads() {
    if (!is_forked()) replayer_->close();
  }
  // The same, then lets go of what owns the programs' memory. With the GIL.
  void close() {
    {
      const nb::gil_scoped_release release;
      close_threads();
    }
    // Emptied first: what goes away may call back.
    std::vector<nb::object>().swap(owners_);
  }
  // Python's collector doesn't look into this object, so what it keeps outlives its threads even
  // when all of it is garbage.
  void keep(nb::object owner) {
    if (!owner.is_none()) owners_.push_back(std::move(owner));
  }

 private:
  bool is_forked() const { return getpid() != owner_; }

  std::vector<nb::object> owners_;
  std::unique_ptr<helios::Replayer> replayer_;
  pid_t owner_ = getpid();
};

// Replayers that still have threads. They are closed at interpreter exit, before the memory that
// queued programs work on goes away.
class OpenReplayers {
 public:
  void add(RegisteredReplayer* replayer) {
    const std::lock_guard lock(mutex_);
    open_.insert(replayer);
  }
  void remove(RegisteredReplayer* replayer) {
    const std::lock_guard lock(mutex_);
    open_.erase(replayer);
  }
  void close_all() {
    const std::lock_guard lock(mutex_);
    for (RegisteredReplayer* replayer : open_) replayer->close_threads();
  }

 private:
  std::mutex mutex_;
  std::set<RegisteredReplayer*> open_;
};

OpenReplayers& open_replayers() {
  static OpenReplayers instance;
  return instance;
}

RegisteredReplayer::RegisteredReplayer(int threads, const std::string& instruction_set)
    : replayer_(std::make_unique<helios::Replayer>(threads, instruction_set)) {
  open_replayers().add(this);
}

RegisteredReplayer::~RegisteredReplayer() {
  open_replayers().remove(this);
  if (is_forked()) {
    static_cast<void>(replayer_.release());
  } else {
    close();
  }
}

}  // namespace

NB_MODULE(_native, module) {
  module.doc() = "The native library: kernels of the `cpu` target and the replayer.";
  module.def("instruction_sets", &helios::instruction_sets);
  module.def("catalogue", &catalogue);

  nb::class_<RegisteredReplayer>(module, "Replayer")
      .def(nb::init<int, const std::string&>(), "threads"_a, "instruction_set"_a)
      .def(
          "add_program",
          [](RegisteredReplayer& self, Array<std::int32_t> kernels,
             Array<std::int32_t> operand_starts, Array<std::uint64_t> addresses,
             Array<std::uint64_t> nbytes, Array<std::int32_t> integer_starts,
             Array<std::int64_t> integers, Array<std::int32_t> float_starts,
             Array<double> floats, nb::object owners) {
            const int program = self.here().add_program(
                {view(kernels), view(operand_starts), view(addresses), view(nbytes),
                 view(integer_starts), view(integers), view(float_starts), view(floats)});
            self.keep(std::move(owners));
            return program;
          },
          "kernels"_a, "operand_starts"_a, "addresses"_a, "nbytes"_a, "integer_starts"_a,
          "integers"_a, "float_starts"_a, "floats"_a, "owners"_a = nb::none())
      .def(
          "submit",
          [](RegisteredReplayer& self, int program, std::uint64_t sequence) {
            self.here().submit(program, sequence);
          },
          "program"_a, "sequence"_a)
      .def("completed", [](RegisteredReplayer& self) { return self.here().completed(); })
      .def(
          "wait",
          [](RegisteredReplayer& self, std::uint64_t sequence, std::int64_t timeout_ms) {
            return self.here().wait(sequence, std::chrono::milliseconds(timeout_ms));
          },
          "sequence"_a, "timeout_ms"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "timing",
          [](RegisteredReplayer& self, std::uint64_t sequence) {
            return self.here().timing(sequence);
          },
          "sequence"_a)
      .def("scratch_nbytes", [](RegisteredReplayer& self) { return self.here().scratch_nbytes(); })
      .def("launches", [](RegisteredReplayer& self) { return self.here().launches(); })
      .def("close", &RegisteredReplayer::close);

  // A fork keeps what the frames of its parent's other threads refer to: no leak of ours.
  nb::module_::import_("os").attr("register_at_fork")(
      "after_in_child"_a = nb::cpp_function([] { nb::set_leak_warnings(false); }));
  nb::module_::import_("atexit").attr("register")(
      nb::cpp_function([] {
        const nb::gil_scoped_release release;
        open_replayers().close_all();
      }));
}
