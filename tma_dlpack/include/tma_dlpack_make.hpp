// tma_dlpack_make.hpp: functions that make a CUtensorMap of a tensor, as the Python functions of
// tma_dlpack do. Header-only, C++17.
//
//   CUtensorMap a = tma_dlpack::make_tma_descriptor(x, {64, 64}, tma_dlpack::Swizzle::bytes128);
//   CUtensorMap b = tma_dlpack::make_im2col_descriptor(x, {-1, -1}, {-1, -1}, 64, 128, swizzle);
//
// x is an at::Tensor, a torch::stable::Tensor, a DLTensor, a tvm::ffi::TensorView or Tensor, a
// nanobind::ndarray, or a TmaDlpackTensor. The headers of these types are not included here. The
// tensor is in the memory of a GPU with TMA, or in managed memory. All lists are row-major. The
// driver encodes the map, but a program need not link against libcuda.
//
// A refused call throws tma_dlpack::refused. The exception's message is one line, which has all
// arguments with the driver's names, the other options, and the broken rules. try_make_... returns
// this line instead of throwing. `python -m tma_dlpack explain` reads the line, and prints how to
// correct the call.

#ifndef TMA_DLPACK_MAKE_HPP
#define TMA_DLPACK_MAKE_HPP

#if !(__cplusplus >= 201703L || (defined(_MSVC_LANG) && _MSVC_LANG >= 201703L))
#error "tma_dlpack_make.hpp needs C++17 or later: compile with -std=c++17"
#endif

#include "tma_dlpack_driver.h"
#include "tma_dlpack_options.hpp"

#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif

namespace tma_dlpack
{
inline namespace v0_4
{

#if defined(CUDA_VERSION) && CUDA_VERSION >= 12000
using MadeMap = CUtensorMap;
static_assert(sizeof(MadeMap) == TMA_DLPACK_MAP_BYTES, "a tensor map is 128 bytes");
#else
struct alignas(TMA_DLPACK_ALIGNMENT_BYTES) MadeMap
{
  unsigned char bytes[TMA_DLPACK_MAP_BYTES];
};
#endif

// A map, or the line of text with the reasons why the call was refused.
struct TriedMap
{
  MadeMap map;
  std::string refusal;  // empty if there is a map
  explicit operator bool() const { return refusal.empty(); }
};

// The error for a call that is refused. what() is one line.
struct refused : std::invalid_argument
{
  using std::invalid_argument::invalid_argument;
};

namespace detail
{

template <class Value>
std::string braced(const Value* values, int count)
{
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i ? ", " : "") + std::to_string(values[i]);
  return text + "}";
}

inline std::string hex(std::uint64_t value)
{
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// Return numbers as text. `values` is row-major, and the text is innermost first.
inline std::string turned(const std::int64_t* values, int count)
{
  std::int64_t reversed[TMA_DLPACK_MAX_RANK] = {};
  for (int i = 0; i < count; ++i) reversed[i] = values[count - 1 - i];
  return braced(reversed, count);
}

// Return all arguments of the driver's function as text, in the function's order. If a list has a
// wrong number of entries, the text has the entries that the caller passed.
inline std::string as_call(const TmaDlpackDescribed& c, const TmaDlpackOptions& o)
{
  static const char* const functions[] = {"cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col",
                                          "cuTensorMapEncodeIm2colWide"};
  // `rank` includes the dimensions that split_inner and ragged add.
  const int rank = c.dims == 0 ? 0 : static_cast<int>(c.rank);
  const int spatial = static_cast<int>(c.spatial);
  std::int64_t strides[TMA_DLPACK_MAX_RANK - 1];
  for (int d = 0; d < rank - 1; ++d) strides[d] = c.stride_bits[d] / 8;
  std::string text = std::string(functions[c.kind]) +
                     "(tensorDataType=" +
                     std::to_string(c.asked_type == TMA_DLPACK_OWN_TYPE ? c.data_type : c.asked_type) +
                     ", tensorRank=" + std::to_string(c.rank) +
                     ", globalAddress=" + hex(static_cast<std::uint64_t>(c.address)) +
                     ", globalDim=" + braced(c.global_dim, rank) +
                     ", globalStrides=" + braced(strides, rank > 1 ? rank - 1 : 0);
  if (c.kind == TMA_DLPACK_TILED)
    text += ", boxDim=" + (o.box_count == c.dims ? braced(c.box_dim, rank) : turned(o.box_sizes, o.box_count));
  else
    text += ", pixelBoxLowerCorner=" +
            (o.lower_count == spatial ? braced(c.lower, spatial) : turned(o.lower, o.lower_count)) +
            ", pixelBoxUpperCorner=" +
            (o.upper_count == spatial ? braced(c.upper, spatial) : turned(o.upper, o.upper_count)) +
            ", channelsPerPixel=" + std::to_string(c.channels) +
            ", pixelsPerColumn=" + std::to_string(c.pixels);
  const bool has_steps = o.elem_stride_count != TMA_DLPACK_NOT_GIVEN && o.elem_stride_count != c.dims;
  return text + ", elementStrides=" +
         (has_steps ? turned(o.elem_strides, o.elem_stride_count) : braced(c.element_strides, rank)) +
         ", interleave=" + std::to_string(c.interleave) + ", swizzle=" + std::to_string(c.swizzle) +
         ", l2Promotion=" + std::to_string(c.l2_promotion) +
         ", oobFill=" + std::to_string(c.oob_fill) + ")";
}

// Return, as text, the facts about a tensor that the driver's arguments lack: DLPack's dtype,
// device, shape and strides.
inline std::string as_tensor(const TmaDlpackTensor& t)
{
  std::string text = "tensor: dtype={" + std::to_string(t.dtype.code) + ", " +
                     std::to_string(t.dtype.bits) + ", " + std::to_string(t.dtype.lanes) +
                     "}, device={" + std::to_string(t.device.device_type) + ", " +
                     std::to_string(t.device.device_id) + "}";
  const int count = t.ndim < 0 ? 0 : t.ndim > 64 ? 64 : t.ndim;
  if (t.shape != nullptr) text += ", shape=" + braced(t.shape, count);
  if (t.strides != nullptr) text += ", strides=" + braced(t.strides, count);
  return text;
}

inline std::string broken_rules(std::uint64_t failed)
{
  std::string text;
  for (int rule = 0; rule < TMA_DLPACK_RULE_COUNT; ++rule)
    if (failed >> rule & 1) text += (text.empty() ? "broken: " : ", ") + std::string(tma_dlpack_rule_id(rule));
  return text;
}

// The options of a call. `beside` is the text of the options that are not arguments of the driver.
// `not_allowable` has the ids in `allow` that no rule has, or whose rule cannot be switched off.
struct Asked
{
  TmaDlpackOptions options;
  std::string beside, not_allowable;
};

// Return the line of text that describes a refused call. `c` is NULL if the call cannot be
// described.
inline std::string refusal(const TmaDlpackTensor& tensor, const TmaDlpackDescribed* c, const Asked& asked,
                           const std::string& why)
{
  const TmaDlpackOptions& o = asked.options;
  const char* rules = o.driver_rules               ? "driver"
                      : o.kind == TMA_DLPACK_TILED ? "libcu++"
                                                   : "documented";
  std::string beside = asked.beside;
  if (c == nullptr && o.kind == TMA_DLPACK_TILED)
    beside += ", box_sizes=" + braced(o.box_sizes, o.box_count);
  else if (c == nullptr)
    beside += ", pixel_box_lower_corner=" + braced(o.lower, o.lower_count) +
              ", pixel_box_upper_corner=" + braced(o.upper, o.upper_count) +
              ", channels_per_pixel=" + std::to_string(o.channels) +
              ", pixels_per_column=" + std::to_string(o.pixels);
  return "tma_dlpack: refused: " + (c == nullptr ? "" : as_call(*c, o) + "; ") + "rules=" + rules + "; " +
         (beside.empty() ? "" : "options: " + beside.substr(2) + "; ") + as_tensor(tensor) +
         (why.empty() ? "" : "; " + why) + "; tma-dlpack explain says why";
}

// Protects the driver's state of this translation unit.
inline std::mutex& driver_mutex()
{
  static std::mutex mutex;
  return mutex;
}

inline TriedMap attempt(const TmaDlpackTensor& tensor, const Asked& asked)
{
  const TmaDlpackOptions& options = asked.options;
  const std::lock_guard<std::mutex> lock(driver_mutex());
  const int ordinal = tma_dlpack_ordinal(&tensor);
  const TmaDlpackGpu* gpu = tma_dlpack_gpu(ordinal);
  const TmaDlpackTarget sm_90 = {9, 0, tma_dlpack_target(0)[2]};
  const TmaDlpackTarget target = gpu != nullptr ? gpu->target : sm_90;
  TmaDlpackDescribed c;
  alignas(TMA_DLPACK_ALIGNMENT_BYTES) MadeMap map = {};
  const char* flaw = tma_dlpack_describe(&tensor, &options, &target, &c);
  if (flaw != nullptr) return {map, refusal(tensor, nullptr, asked, flaw)};
  std::string why = broken_rules(tma_dlpack_judge(&c, tma_dlpack_asked(&options, &target)));
  if (!asked.not_allowable.empty())
    why += (why.empty() ? "allow names " : "; allow names ") + asked.not_allowable +
           ", which is not a rule of libcu++ alone";
  const bool on_gpu = tensor.device.device_type == TMA_DLPACK_CUDA ||
                      tensor.device.device_type == TMA_DLPACK_CUDA_MANAGED;
  const char* place = !on_gpu ? "the tensor is not on a GPU, so no kernel can have its map"
                      : gpu == nullptr ? "there is no such GPU, or no driver with tensor maps"
                                       : "";
  why += (why.empty() || *place == 0 ? "" : "; ") + std::string(place);
  if (!why.empty()) return {map, refusal(tensor, &c, asked, why)};
  tma_dlpack_extend(&c);
  const int result = tma_dlpack_driver_encode(&c, ordinal, reinterpret_cast<unsigned char*>(&map));
  if (result != 0) why = "the driver returned CUresult " + std::to_string(result);
  return {map, why.empty() ? why : refusal(tensor, &c, asked, why)};
}

inline MadeMap make(const TmaDlpackTensor& tensor, const Asked& asked)
{
  const TriedMap tried = attempt(tensor, asked);
  if (!tried) throw refused(tried.refusal);
  return tried.map;
}

inline int put(const std::vector<std::int64_t>& values, std::int64_t* out, const char* name)
{
  if (values.empty() || values.size() > TMA_DLPACK_MAX_RANK)
    throw refused("tma_dlpack: refused: " + std::string(name) + "=" +
                  braced(values.data(), static_cast<int>(values.size())) + " has " +
                  std::to_string(values.size()) + " entries, and a tensor map has 1 to 5 dimensions");
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = values[i];
  return static_cast<int>(values.size());
}

// Return a mask with the bit of a rule. If the option `allow` may not contain this rule, return 0.
inline std::uint64_t allowed(const std::string& id)
{
  for (int rule = 0; rule < TMA_DLPACK_RULE_COUNT; ++rule)
    if (TMA_DLPACK_ALLOWABLE >> rule & 1 && id == tma_dlpack_rule_id(rule)) return std::uint64_t{1} << rule;
  return 0;
}

inline void append(std::string& list, const std::string& text) { list += (list.empty() ? "" : ", ") + text; }

inline Asked start(int kind, Swizzle swizzle, const MakeOptions& more)
{
  Asked asked;
  TmaDlpackOptions& options = asked.options;
  std::string ids;
  tma_dlpack_start_options(&options, kind);
  options.driver_rules = more.driver_rules;
  options.asked_type = more.data_type.value_or(TMA_DLPACK_OWN_TYPE);
  options.interleave = static_cast<int>(more.interleave_layout);
  options.swizzle = static_cast<int>(swizzle);
  options.has_swizzle = 1;
  options.l2_promotion = static_cast<int>(more.l2_fetch_size);
  options.oob_fill = static_cast<int>(more.oobfill);
  if (!more.elem_strides.empty())
    options.elem_stride_count = put(more.elem_strides, options.elem_strides, "elem_strides");
  for (const std::string& id : more.allow)
  {
    append(ids, id);
    options.allowed |= allowed(id);
    if (allowed(id) == 0) append(asked.not_allowable, id);
  }
  if (!ids.empty()) asked.beside += ", allow={" + ids + "}";
  if (options.asked_type != TMA_DLPACK_OWN_TYPE)
    asked.beside += ", data_type=" + std::to_string(options.asked_type);
  // Store the value of each option in TMA_DLPACK_RARE_OPTIONS. If the value is not the default,
  // also append the option as text.
  const MakeOptions usual;
#define TMA_DLPACK_FLAG(name)                                                                      \
  options.name = more.name;                                                                        \
  if (more.name != usual.name) asked.beside += more.name ? ", " #name "=True" : ", " #name "=False";
#define TMA_DLPACK_INTEGER(name)                                                                   \
  options.name = more.name;                                                                        \
  if (more.name != usual.name) asked.beside += ", " #name "=" + std::to_string(more.name);
#define TMA_DLPACK_OPTIONAL_INTEGER(name)                                                          \
  options.has_##name = more.name.has_value();                                                      \
  options.name = more.name.value_or(0);                                                            \
  if (more.name) asked.beside += ", " #name "=" + std::to_string(*more.name);
#define TMA_DLPACK_INTEGERS(name, count)                                                           \
  if (more.name) options.count = put(*more.name, options.name, #name);                             \
  if (more.name) asked.beside += ", " #name "=" + braced(options.name, options.count);
  TMA_DLPACK_RARE_OPTIONS(TMA_DLPACK_FLAG, TMA_DLPACK_INTEGER, TMA_DLPACK_OPTIONAL_INTEGER, TMA_DLPACK_INTEGERS)
#undef TMA_DLPACK_FLAG
#undef TMA_DLPACK_INTEGER
#undef TMA_DLPACK_OPTIONAL_INTEGER
#undef TMA_DLPACK_INTEGERS
  if (kind != TMA_DLPACK_TILED && (more.split_inner || more.ragged))
    throw refused("tma_dlpack: refused: split_inner and ragged are options of tiled maps");
  return asked;
}

// Return DLPack's dtype for torch's c10::ScalarType, which is passed as a number. The numbers never
// change, because torch writes them to files (torch/headeronly/core/ScalarType.h). Integers below a
// byte and quantized types have no case, because no tensor map has such elements. Each element of
// Float4_e2m1fn_x2 holds two values, so its DLPack dtype has two lanes.
inline TmaDlpackDataType dtype_of_torch(int scalar_type)
{
  switch (scalar_type)
  {
    case 0: return {TMA_DLPACK_UINT, 8, 1};     // Byte
    case 1: return {TMA_DLPACK_INT, 8, 1};      // Char
    case 2: return {TMA_DLPACK_INT, 16, 1};     // Short
    case 3: return {TMA_DLPACK_INT, 32, 1};     // Int
    case 4: return {TMA_DLPACK_INT, 64, 1};     // Long
    case 5: return {TMA_DLPACK_FLOAT, 16, 1};   // Half
    case 6: return {TMA_DLPACK_FLOAT, 32, 1};   // Float
    case 7: return {TMA_DLPACK_FLOAT, 64, 1};   // Double
    case 8: return {TMA_DLPACK_COMPLEX, 32, 1}; // ComplexHalf
    case 9: return {TMA_DLPACK_COMPLEX, 64, 1}; // ComplexFloat
    case 10: return {TMA_DLPACK_COMPLEX, 128, 1}; // ComplexDouble
    case 11: return {TMA_DLPACK_BOOL, 8, 1};    // Bool
    case 15: return {TMA_DLPACK_BFLOAT, 16, 1}; // BFloat16
    case 23: return {12, 8, 1};                 // Float8_e5m2
    case 24: return {10, 8, 1};                 // Float8_e4m3fn
    case 25: return {13, 8, 1};                 // Float8_e5m2fnuz
    case 26: return {11, 8, 1};                 // Float8_e4m3fnuz
    case 27: return {TMA_DLPACK_UINT, 16, 1};   // UInt16
    case 28: return {TMA_DLPACK_UINT, 32, 1};   // UInt32
    case 29: return {TMA_DLPACK_UINT, 64, 1};   // UInt64
    case 44: return {14, 8, 1};                 // Float8_e8m0fnu
    case 45: return {17, 4, 2};                 // Float4_e2m1fn_x2
    default:
      throw refused("tma_dlpack: refused: no tensor map has elements of torch's ScalarType " +
                    std::to_string(scalar_type) + "; pass x.view(torch.uint8), or another type of its size");
  }
}

}  // namespace detail

// ---- any tensor as a TmaDlpackTensor -----------------------------------------------------------------

// A view of a tensor. The view is valid as long as the tensor exists.
struct TensorView
{
  TmaDlpackTensor tensor;
};

namespace detail
{

template <class Pointer>
std::int64_t* extents(const Pointer* numbers)
{
  static_assert(sizeof(Pointer) == sizeof(std::int64_t), "extents and strides have 64 bits");
  return reinterpret_cast<std::int64_t*>(const_cast<Pointer*>(numbers));
}

template <class Device, class Type>
TensorView viewed(const void* data, Device device, std::int64_t ndim, Type dtype, std::int64_t* shape,
                  std::int64_t* strides, std::uint64_t byte_offset)
{
  return {{const_cast<void*>(data),
           {static_cast<std::int32_t>(device.device_type), static_cast<std::int32_t>(device.device_id)},
           static_cast<std::int32_t>(ndim),
           {static_cast<std::uint8_t>(dtype.code), static_cast<std::uint8_t>(dtype.bits),
            static_cast<std::uint16_t>(dtype.lanes)},
           shape,
           strides,
           byte_offset}};
}

// A type of tensor is recognised by its members, so the header of the type need not be included.
template <class Tensor, class = void>
inline constexpr bool is_dltensor = false;  // DLTensor of dlpack.h, and derived types
template <class Tensor>
inline constexpr bool
  is_dltensor<Tensor, std::void_t<decltype(std::declval<const Tensor&>().dtype.lanes),
                                  decltype(std::declval<const Tensor&>().device.device_type),
                                  decltype(std::declval<const Tensor&>().strides[0]),
                                  decltype(std::declval<const Tensor&>().byte_offset)>> = true;

template <class Tensor, class = void>
inline constexpr bool is_torch = false;  // at::Tensor, torch::Tensor and torch::stable::Tensor
template <class Tensor>
inline constexpr bool is_torch<Tensor, std::void_t<decltype(std::declval<const Tensor&>().scalar_type()),
                                                   decltype(std::declval<const Tensor&>().is_cuda()),
                                                   decltype(std::declval<const Tensor&>().sizes().data()),
                                                   decltype(std::declval<const Tensor&>().strides().data())>> =
  true;

template <class Tensor, class = void>
inline constexpr bool has_lazy_bits = false;  // false for torch::stable::Tensor
template <class Tensor>
inline constexpr bool has_lazy_bits<Tensor, std::void_t<decltype(std::declval<const Tensor&>().is_neg()),
                                                        decltype(std::declval<const Tensor&>().is_conj())>> =
  true;

template <class Tensor, class = void>
inline constexpr bool has_layout = false;  // true for at::Tensor, and for torch::stable::Tensor since torch 2.9
template <class Tensor>
inline constexpr bool has_layout<Tensor, std::void_t<decltype(std::declval<const Tensor&>().defined()),
                                                     decltype(std::declval<const Tensor&>().layout())>> =
  true;

template <class Tensor, class = void>
inline constexpr bool is_tvm = false;  // tvm::ffi::Tensor and TensorView
template <class Tensor>
inline constexpr bool is_tvm<Tensor, std::void_t<decltype(std::declval<const Tensor&>().dtype().lanes),
                                                 decltype(std::declval<const Tensor&>().device().device_type),
                                                 decltype(std::declval<const Tensor&>().shape().data()),
                                                 decltype(std::declval<const Tensor&>().byte_offset())>> = true;

template <class Tensor, class = void>
inline constexpr bool is_nanobind = false;  // nanobind::ndarray
template <class Tensor>
inline constexpr bool is_nanobind<Tensor, std::void_t<decltype(std::declval<const Tensor&>().shape_ptr()),
                                                      decltype(std::declval<const Tensor&>().stride_ptr()),
                                                      decltype(std::declval<const Tensor&>().device_id()),
                                                      decltype(std::declval<const Tensor&>().dtype().lanes)>> =
  true;

template <class Tensor>
TensorView view_of_torch(const Tensor& tensor)
{
  if constexpr (has_layout<Tensor>)
    if (!tensor.defined() || static_cast<int>(tensor.layout()) != 0)  // 0 is at::kStrided
      throw refused("tma_dlpack: refused: the tensor is undefined, or its layout is not strided; pass "
                    "x.to_dense()");
  if constexpr (has_lazy_bits<Tensor>)
    if (tensor.is_neg() || tensor.is_conj())
      throw refused("tma_dlpack: refused: the tensor is lazily negated or conjugated; pass "
                    "x.resolve_neg().resolve_conj()");
  const bool on_gpu = tensor.is_cuda();
  const TmaDlpackDevice device = {on_gpu ? TMA_DLPACK_CUDA : TMA_DLPACK_CPU,
                                  on_gpu ? static_cast<std::int32_t>(tensor.get_device()) : 0};
  return viewed(tensor.data_ptr(), device, tensor.dim(),
                dtype_of_torch(static_cast<int>(tensor.scalar_type())), extents(tensor.sizes().data()),
                extents(tensor.strides().data()), 0);
}

template <class>
inline constexpr bool is_none = false;

}  // namespace detail

// Return the view of a tensor. The list at the beginning of this file has the types of tensors.
// torch's lazily negated and conjugated tensors are refused, because the values in their memory are
// not negated or conjugated. torch's undefined and sparse tensors are refused, because they have no
// strides.
template <class Tensor>
TensorView view_of(const Tensor& tensor)
{
  if constexpr (detail::is_dltensor<Tensor>)
    return detail::viewed(tensor.data, tensor.device, tensor.ndim, tensor.dtype,
                          detail::extents(tensor.shape), detail::extents(tensor.strides), tensor.byte_offset);
  else if constexpr (detail::is_torch<Tensor>)
    return detail::view_of_torch(tensor);
  else if constexpr (detail::is_tvm<Tensor>)
    return detail::viewed(tensor.data_ptr(), tensor.device(), tensor.ndim(), tensor.dtype(),
                          detail::extents(tensor.shape().data()), detail::extents(tensor.strides().data()),
                          tensor.byte_offset());
  else if constexpr (detail::is_nanobind<Tensor>)  // data() includes the offset
    return detail::viewed(tensor.data(), TmaDlpackDevice{tensor.device_type(), tensor.device_id()},
                          static_cast<std::int64_t>(tensor.ndim()), tensor.dtype(),
                          detail::extents(tensor.shape_ptr()), detail::extents(tensor.stride_ptr()), 0);
  else
    static_assert(detail::is_none<Tensor>,
                  "tma_dlpack takes an at::Tensor, a torch::stable::Tensor, a DLTensor, a tvm::ffi::TensorView "
                  "or Tensor, a nanobind::ndarray, or a TmaDlpackTensor that you fill in");
}

namespace detail
{

inline Asked tiled(const std::vector<std::int64_t>& box_sizes, Swizzle swizzle, const MakeOptions& more)
{
  Asked asked = start(TMA_DLPACK_TILED, swizzle, more);
  asked.options.box_count = put(box_sizes, asked.options.box_sizes, "box_sizes");
  return asked;
}

inline Asked im2col(const std::vector<std::int64_t>& lower_corner,
                    const std::vector<std::int64_t>& upper_corner, std::int64_t channels_per_pixel,
                    std::int64_t pixels_per_column, Swizzle swizzle, const MakeOptions& more)
{
  Asked asked = start(TMA_DLPACK_IM2COL, swizzle, more);
  TmaDlpackOptions& options = asked.options;
  options.lower_count = put(lower_corner, options.lower, "pixel_box_lower_corner");
  options.upper_count = put(upper_corner, options.upper, "pixel_box_upper_corner");
  options.channels = channels_per_pixel;
  options.pixels = pixels_per_column;
  return asked;
}

// Return the result of `make`. If `make` throws `refused`, return the line of this exception.
template <class Make>
TriedMap tried(Make make)
{
  try
  {
    return make();
  }
  catch (const refused& error)
  {
    return {MadeMap{}, error.what()};
  }
}

}  // namespace detail

// ---- the verbs -----------------------------------------------------------------------------------------

// Make the tiled map of a tensor. box_sizes has an entry for each dimension, row-major like the
// shape. Each entry is 1 to 256 elements.
template <class Tensor>
MadeMap make_tma_descriptor(const Tensor& tensor, const std::vector<std::int64_t>& box_sizes,
                            Swizzle swizzle = Swizzle::none, const MakeOptions& more = {})
{
  return detail::make(view_of(tensor).tensor, detail::tiled(box_sizes, swizzle, more));
}

// make_tma_descriptor() without an exception for a refused call. Returns a map, or the line with
// the reasons.
template <class Tensor>
TriedMap try_make_tma_descriptor(const Tensor& tensor, const std::vector<std::int64_t>& box_sizes,
                                 Swizzle swizzle = Swizzle::none, const MakeOptions& more = {})
{
  return detail::tried(
      [&] { return detail::attempt(view_of(tensor).tensor, detail::tiled(box_sizes, swizzle, more)); });
}

// Make the im2col map of an N, [D,] [H,] W, C tensor. Corners are row-major: (D, H, W), (H, W) or (W).
template <class Tensor>
MadeMap make_im2col_descriptor(const Tensor& tensor, const std::vector<std::int64_t>& lower_corner,
                               const std::vector<std::int64_t>& upper_corner,
                               std::int64_t channels_per_pixel, std::int64_t pixels_per_column,
                               Swizzle swizzle = Swizzle::none, const MakeOptions& more = {})
{
  return detail::make(view_of(tensor).tensor, detail::im2col(lower_corner, upper_corner, channels_per_pixel,
                                                             pixels_per_column, swizzle, more));
}

// make_im2col_descriptor() without an exception for a refused call. Returns a map, or the line with
// the reasons.
template <class Tensor>
TriedMap try_make_im2col_descriptor(const Tensor& tensor, const std::vector<std::int64_t>& lower_corner,
                                    const std::vector<std::int64_t>& upper_corner,
                                    std::int64_t channels_per_pixel, std::int64_t pixels_per_column,
                                    Swizzle swizzle = Swizzle::none, const MakeOptions& more = {})
{
  return detail::tried([&] {
    return detail::attempt(view_of(tensor).tensor,
                           detail::im2col(lower_corner, upper_corner, channels_per_pixel,
                                          pixels_per_column, swizzle, more));
  });
}

}  // namespace v0_4
}  // namespace tma_dlpack

#endif  // TMA_DLPACK_MAKE_HPP
