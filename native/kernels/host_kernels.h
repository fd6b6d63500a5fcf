// Declarations of the kernels that hold no vector work and are compiled once: bookkeeping on
// request state, row selection, and sampling, which takes its vector passes as arguments.
#pragma once

#include <cstdint>

#include "../launch.h"
#include "kernels.h"

namespace helios {

void run_scatter_i32(const Launch&, const Piece&);
void run_initialize_requests(const Launch&, const Piece&);
void run_load_pending(const Launch&, const Piece&);
void run_select_last(const Launch&, const Piece&);
void run_commit(const Launch&, const Piece&);

void run_sample(const Launch&, const Piece&, const LogitScans&);
std::uint64_t sample_scratch_nbytes(std::int64_t vocab);

}  // namespace helios
