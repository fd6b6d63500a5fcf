// Declarations of the kernels that hold no vector work and are compiled once: bookkeeping on
// request state, row selection, copies of pages and rows, and what reads logits, which takes its
// vector passes as arguments.
#pragma once

#include <cstdint>

#include "../launch.h"
#include "kernels.h"

namespace helios {

void run_scatter_i32(const Launch&, const Piece&);
void run_initialize_requests(const Launch&, const Piece&);
void run_load_pending(const Launch&, const Piece&);
void run_select_last(const Launch&, const Piece&);
void run_select_attending(const Launch&, const Piece&);
void run_commit(const Launch&, const Piece&);
void run_set_pending(const Launch&, const Piece&);
void run_merge_pending(const Launch&, const Piece&);
void run_slice_rows(const Launch&, const Piece&);
void run_save_page(const Launch&, const Piece&);
void run_load_page(const Launch&, const Piece&);
void run_copy_rows(const Launch&, const Piece&);
void run_initialize_sampling(const Launch&, const Piece&);
void run_count_sampled(const Launch&, const Piece&);

void run_sample(const Launch&, const Piece&, const LogitScans&);
void run_score(const Launch&, const Piece&, const LogitScans&);
void run_score_ranked(const Launch&, const Piece&, const LogitScans&);
void run_sample_processed(const Launch&, const Piece&, const LogitScans&);
// What `sample`, `score` and `score_ranked` need for a vocabulary, and what `sample_processed` needs.
std::uint64_t sample_scratch_nbytes(std::int64_t vocab);
std::uint64_t processed_scratch_nbytes(std::int64_t vocab);

}  // namespace helios
