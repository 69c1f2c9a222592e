// make_tma_descriptor in C++ without torch or a GPU: what is refused, and how. For test_make_hpp.py.
#define DLPACK_MAJOR_VERSION 1
#include <cstdint>
struct DLTensor  // as dlpack.h has it
{
  void* data;
  struct { std::int32_t device_type, device_id; } device;
  std::int32_t ndim;
  struct { std::uint8_t code, bits; std::uint16_t lanes; } dtype;
  std::int64_t *shape, *strides;
  std::uint64_t byte_offset;
};
#include "tma_dlpack_make.hpp"

#include <cstdio>

// The methods of an at::Tensor that the header calls.
struct Tensor
{
  struct Sizes
  {
    const std::int64_t* first;
    const std::int64_t* data() const { return first; }
  };
  std::int64_t shape[2] = {128, 64}, steps[2] = {64, 1};
  bool negated = false, exists = true;
  enum class Layout : signed char { strided, sparse } kind = Layout::strided;
  bool defined() const { return exists; }
  Layout layout() const { return kind; }
  int scalar_type() const { return 15; }
  bool is_neg() const { return negated; }
  bool is_conj() const { return false; }
  bool is_cuda() const { return false; }
  int get_device() const { return -1; }
  int dim() const { return 2; }
  Sizes sizes() const { return {shape}; }
  Sizes strides() const { return exists && kind == Layout::strided ? Sizes{steps} : throw "no strides"; }
  void* data_ptr() const { return reinterpret_cast<void*>(0x7f0000000000); }
};

template <class Make>
void say(Make make)
{
  try
  {
    make();
    std::puts("made");
  }
  catch (const std::invalid_argument& error)
  {
    std::puts(error.what());
  }
}

int main()
{
  using tma_dlpack::Swizzle;
  std::int64_t shape[] = {128, 64}, image[] = {2, 14, 14, 32};
  DLTensor matrix = {reinterpret_cast<void*>(0x7f0000000000), {2, 99}, 2, {2, 16, 1}, shape, nullptr, 0};
  DLTensor images = matrix;
  images.ndim = 4;
  images.shape = image;
  Tensor negated;
  negated.negated = true;
  say([&] { tma_dlpack::make_tma_descriptor(matrix, {16, 65}, Swizzle::bytes128); });
  say([&] { tma_dlpack::make_tma_descriptor(Tensor{}, {16, 64}, Swizzle::bytes128); });
  say([&] { tma_dlpack::make_tma_descriptor(negated, {16, 64}); });
  say([&] { tma_dlpack::make_tma_descriptor(matrix, {16, 64, 1, 1, 1, 1}); });
  say([&] { tma_dlpack::make_im2col_descriptor(images, {-1, -1}, {1, 1}, 32, 64, Swizzle::bytes64); });
  say([&] { tma_dlpack::make_im2col_descriptor(images, {-1}, {1}, 32, 64); });
  const tma_dlpack::TriedMap tried = tma_dlpack::try_make_tma_descriptor(matrix, {16, 65}, Swizzle::bytes128);
  std::puts(tried ? "made" : ("tried: " + tried.refusal).c_str());
  tma_dlpack::MakeOptions more;
  more.split_inner = true;
  more.ragged = 0;
  more.allow = {"STRIDE_UNIQUE", "BOX_IN_SHAPE"};
  more.shape = {128, 64};
  more.strides = {64, 1};
  say([&] { tma_dlpack::make_tma_descriptor(matrix, {200, 64}, Swizzle::bytes64, more); });
  more.allow = {"STRIDE_UNIQUE", "BOX_RANGE", "BOX_RAGE"};
  say([&] { tma_dlpack::make_tma_descriptor(matrix, {16, 64}, Swizzle::bytes128, more); });
  say([&] { tma_dlpack::make_tma_descriptor(matrix, {1, 16, 64}, Swizzle::bytes128); });
  tma_dlpack::MakeOptions steps;
  steps.elem_strides = {1, 2, 4};
  say([&] { tma_dlpack::make_tma_descriptor(matrix, {16, 64}, Swizzle::bytes128, steps); });
  say([&] { tma_dlpack::make_im2col_descriptor(images, {-1, -2, -3}, {1}, 32, 64, Swizzle::bytes64); });
  const tma_dlpack::TriedMap column = tma_dlpack::try_make_im2col_descriptor(images, {-1}, {1}, 32, 64);
  std::puts(column ? "made" : ("tried: " + column.refusal).c_str());
  const tma_dlpack::TriedMap none = tma_dlpack::try_make_im2col_descriptor(images, {}, {1}, 32, 64);
  std::puts(none ? "made" : ("tried: " + none.refusal).c_str());

  // of six dimensions, described in two; without gaps, with gaps, with gaps and strides
  std::int64_t six[] = {2, 1, 2, 2, 16, 64}, gaps[] = {8192, 8192, 4096, 2048, 128, 1};
  DLTensor deep = {reinterpret_cast<void*>(0x7f0000000000), {2, 99}, 6, {2, 16, 1}, six, nullptr, 0};
  tma_dlpack::MakeOptions flat;
  say([&] { tma_dlpack::make_tma_descriptor(deep, {16, 64}, Swizzle::bytes128, flat); });
  flat.shape = {128, 64};
  say([&] { tma_dlpack::make_tma_descriptor(deep, {16, 64}, Swizzle::bytes128, flat); });
  deep.strides = gaps;
  say([&] { tma_dlpack::make_tma_descriptor(deep, {16, 64}, Swizzle::bytes128, flat); });
  flat.strides = {128, 1};
  flat.offset = 64;
  say([&] { tma_dlpack::make_tma_descriptor(deep, {16, 64}, Swizzle::bytes128, flat); });

  say([&] { tma_dlpack::make_tma_descriptor(matrix, {16, 64}, Swizzle::bytes128_atom_64B); });

  // a data type of another size than the dtype, in an enum, and not in the enum; and no type at all
  tma_dlpack::MakeOptions typed;
  typed.data_type = 7;
  say([&] { tma_dlpack::make_tma_descriptor(matrix, {16, 64}, Swizzle::bytes128, typed); });
  typed.data_type = 9;
  say([&] { tma_dlpack::make_tma_descriptor(matrix, {16, 64}, Swizzle::bytes128, typed); });
  typed.data_type = 99;
  say([&] { tma_dlpack::make_tma_descriptor(matrix, {16, 64}, Swizzle::bytes128, typed); });
  matrix.dtype = {5, 64, 1};
  say([&] { tma_dlpack::make_tma_descriptor(matrix, {16, 8}, Swizzle::none); });

  Tensor undefined, sparse;
  undefined.exists = false;
  sparse.kind = Tensor::Layout::sparse;
  std::puts(tma_dlpack::try_make_tma_descriptor(undefined, {16, 64}).refusal.c_str());
  std::puts(tma_dlpack::try_make_im2col_descriptor(sparse, {0}, {0}, 32, 16).refusal.c_str());

  deep.strides = nullptr;
  say([&] { tma_dlpack::make_im2col_descriptor(deep, {-1, -2}, {1, 2}, 32, 64, Swizzle::bytes64); });
}
