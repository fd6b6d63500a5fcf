// The Python face of the native library: src/helios/_native.pyi describes it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <set>

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

// Replayers that still have threads. They are closed at interpreter exit, before the memory that
// queued programs work on goes away.
class OpenReplayers {
 public:
  void add(helios::Replayer* replayer) {
    const std::lock_guard lock(mutex_);
    open_.insert(replayer);
  }
  void remove(helios::Replayer* replayer) {
    const std::lock_guard lock(mutex_);
    open_.erase(replayer);
  }
  void close_all() {
    const std::lock_guard lock(mutex_);
    for (helios::Replayer* replayer : open_) replayer->close();
  }

 private:
  std::mutex mutex_;
  std::set<helios::Replayer*> open_;
};

OpenReplayers& open_replayers() {
  static OpenReplayers instance;
  return instance;
}

class RegisteredReplayer : public helios::Replayer {
 public:
  RegisteredReplayer(int threads, const std::string& instruction_set)
      : Replayer(threads, instruction_set) {
    open_replayers().add(this);
  }
  ~RegisteredReplayer() {
    open_replayers().remove(this);
    close_without_gil();
  }
  void close_without_gil() {
    const nb::gil_scoped_release release;
    close();
  }
};

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
             Array<double> floats) {
            return self.add_program({view(kernels), view(operand_starts), view(addresses),
                                     view(nbytes), view(integer_starts), view(integers),
                                     view(float_starts), view(floats)});
          },
          "kernels"_a, "operand_starts"_a, "addresses"_a, "nbytes"_a, "integer_starts"_a,
          "integers"_a, "float_starts"_a, "floats"_a)
      .def("submit", &RegisteredReplayer::submit, "program"_a, "sequence"_a)
      .def("completed", &RegisteredReplayer::completed)
      .def(
          "wait",
          [](RegisteredReplayer& self, std::uint64_t sequence, std::int64_t timeout_ms) {
            return self.wait(sequence, std::chrono::milliseconds(timeout_ms));
          },
          "sequence"_a, "timeout_ms"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("timing", &RegisteredReplayer::timing, "sequence"_a)
      .def("scratch_nbytes", &RegisteredReplayer::scratch_nbytes)
      .def("launches", &RegisteredReplayer::launches)
      .def("close", &RegisteredReplayer::close_without_gil);

  nb::module_::import_("atexit").attr("register")(
      nb::cpp_function([] {
        const nb::gil_scoped_release release;
        open_replayers().close_all();
      }));
}
