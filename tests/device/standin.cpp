// A second device without hardware: a PrivateUse1 backend whose operators are those of the CPU, run on views of its
// memory, after the checks that a CUDA build makes. It proves where tensors live; it says nothing about the numbers, the
// speed or the asynchrony of a GPU. Written for torch 2.13.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/extension.h>

#include <cstdlib>
#include <cstring>
#include <unordered_set>

namespace {

constexpr auto TYPE = c10::DeviceType::PrivateUse1;
const c10::Device DEVICE(TYPE, 0);

// ---- Memory: that of the host under another device's name, NaN where nothing was written --------------------------

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* start = bytes ? std::malloc(bytes) : nullptr;
    TORCH_CHECK(start || !bytes, "standin: out of memory");
    if (bytes) std::memset(start, 0xff, bytes);
    return {start, start, &std::free, DEVICE};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};
Memory memory;

at::Tensor tensors_on_cpu(const at::Tensor& t) {  // the same memory as a tensor of the CPU
  auto view = at::from_blob(t.numel() ? t.data_ptr() : nullptr, t.sizes(), t.strides(),
                            t.options().device(at::kCPU).requires_grad(false));
  if (t.is_conj()) view._set_conj(true);
  if (t.is_neg()) view._set_neg(true);
  return view;
}

at::Tensor on_device(const at::Tensor& t) {  // a copy
  auto copy = at::empty_strided(t.sizes(), t.strides(), t.options().device(DEVICE));
  if (t.numel()) tensors_on_cpu(copy).copy_(t);
  return copy;
}

// ---- Generators: one of the CPU under the device's name -----------------------------------------------------------

struct Generator final : c10::GeneratorImpl {
  at::Generator inner;
  explicit Generator(at::Generator g)
      : c10::GeneratorImpl(DEVICE, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)), inner(std::move(g)) {}
  void set_current_seed(uint64_t seed) override { inner.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { inner.set_offset(offset); }
  uint64_t get_offset() const override { return inner.get_offset(); }
  uint64_t current_seed() const override { return inner.current_seed(); }
  uint64_t seed() override { return inner.seed(); }
  void set_state(const c10::TensorImpl& state) override { inner.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return inner.unsafeGetGeneratorImpl()->get_state(); }
  Generator* clone_impl() const override { return new Generator(inner.clone()); }
};

at::Generator new_generator() { return at::make_generator<Generator>(at::detail::createCPUGenerator()); }

const at::Generator& default_generator() {
  static at::Generator generator = new_generator();
  return generator;
}

at::Generator inner(const at::Generator& g) { return static_cast<Generator*>(g.unsafeGetGeneratorImpl())->inner; }

// ---- What torch asks of a backend ---------------------------------------------------------------------------------

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return default_generator(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return new_generator(); }
  at::Device getDeviceFromPtr(void*) const override { return DEVICE; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(c10::DeviceType::CPU); }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    auto fresh = memory.allocate(bytes);
    if (auto kept = std::min(bytes, storage.nbytes())) std::memcpy(fresh.get(), storage.data(), kept);
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(fresh));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

struct Guard final : c10::impl::NoOpDeviceGuardImpl<TYPE> {
  c10::Device getDevice() const override { return DEVICE; }
  c10::Device exchangeDevice(c10::Device) const override { return DEVICE; }
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, DEVICE); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// ---- The rules of CUDA about operands -----------------------------------------------------------------------------

// Operators that take a 0-dimensional tensor of the CPU as a number.
const std::unordered_set<std::string> NUMBERS = {
    "add", "sub", "rsub", "mul", "div", "true_divide", "floor_divide", "remainder", "fmod", "pow", "float_power",
    "maximum", "minimum", "fmax", "fmin", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or",
    "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "where", "hypot", "atan2", "copysign", "nextafter",
    "xlogy", "special_xlog1py", "logaddexp", "logaddexp2", "masked_fill", "index_fill", "index_put",
    "_index_put_impl", "fill"};
const std::unordered_set<std::string> INDEXING = {"index", "index_put", "_index_put_impl", "_unsafe_index",
                                                  "_unsafe_index_put"};

std::string bare(std::string name) {  // aten::add_ -> add
  name = name.substr(name.find("::") + 2);
  while (!name.empty() && name.back() == '_') name.pop_back();
  return name;
}

void check(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  const std::string& name = op.schema().operator_name().name;
  const size_t first = stack.size() - arguments.size();
  std::string here, host;  // an argument on the device, and one with memory of the CPU
  bool number = false, index_here = false;
  auto look = [&](const at::Tensor& t, const std::string& argument) {
    if (!t.defined()) return;
    if (t.is_privateuseone()) here = argument;
    else if (t.dim()) host = argument;
    else number = true;
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = stack[first + i];
    const std::string& argument = arguments[i].name();
    if (value.isTensor()) {
      look(value.toTensor(), argument);
      TORCH_CHECK(!(i == 0 && number && arguments[0].alias_info() && arguments[0].alias_info()->isWrite()),
                  "a 0-dimensional tensor on the cpu is to be changed in place (", name, ")");
    } else if (value.isList() && argument == "indices" && INDEXING.count(bare(name))) {
      for (const c10::IValue& item : value.toListRef()) {
        if (!item.isTensor() || !item.toTensor().defined()) continue;
        index_here |= item.toTensor().is_privateuseone();
      }
    } else if (value.isList()) {
      for (const c10::IValue& item : value.toListRef())
        if (item.isTensor()) look(item.toTensor(), argument);
    } else if (value.isGenerator()) {
      TORCH_CHECK(value.toGenerator().device() == DEVICE, "Expected a '", DEVICE, "' device type for generator but found '",
                  value.toGenerator().device(), "' (", name, ")");
    }
  }
  TORCH_CHECK(!index_here || !here.empty(), "indices should be on the cpu or on the device of the indexed tensor (", name, ")");
  TORCH_CHECK(here.empty() || host.empty(), "Expected all tensors to be on the same device, but found ", here, " on ", DEVICE,
              " and ", host, " on cpu (", name, ")");
  TORCH_CHECK(here.empty() || !number || NUMBERS.count(bare(name)),
              "Expected all tensors to be on the same device, but a 0-dimensional one is on the cpu (", name, ")");
}

// ---- Operators ----------------------------------------------------------------------------------------------------

// Whether all that an operator does is to return new tensors, so that it may run on views of its arguments.
bool is_pure(const c10::FunctionSchema& schema) {
  if (schema.is_mutable()) return false;
  for (const auto& result : schema.returns())
    if (result.alias_info() || result.type()->kind() != c10::TypeKind::TensorType) return false;
  for (const auto& argument : schema.arguments())
    if (argument.alias_info()) return false;
  return true;
}

void run_on_views(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  auto lower = [](const at::Tensor& t) { return t.defined() && t.is_privateuseone() ? tensors_on_cpu(t) : t; };
  for (size_t i = stack.size() - op.schema().arguments().size(); i < stack.size(); ++i) {
    c10::IValue& value = stack[i];
    if (value.isTensor()) {
      value = lower(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : value.toTensorList().vec()) list.push_back(lower(t));
      value = list;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto& t : value.toOptionalTensorList().vec()) list.push_back(t ? std::optional(lower(*t)) : t);
      value = list;
    } else if (value.isDevice()) {
      value = c10::Device(at::kCPU);
    }
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  for (size_t i = stack.size() - op.schema().returns().size(); i < stack.size(); ++i)
    if (stack[i].isTensor() && stack[i].toTensor().defined()) stack[i] = on_device(stack[i].toTensor());
}

void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  check(op, *stack);
  const auto& schema = op.schema();
  for (size_t i = 0; i < schema.arguments().size(); ++i) {  // the operators of the CPU draw from its generators
    c10::IValue& value = (*stack)[stack->size() - schema.arguments().size() + i];
    if (value.isGenerator()) value = inner(value.toGenerator());
    else if (schema.arguments()[i].name() == "generator" && value.isNone()) value = inner(default_generator());
  }
  if (is_pure(schema)) run_on_views(op, *stack);
  else at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  auto target = to.is_cpu() ? to : tensors_on_cpu(to);
  if (to.numel()) at::native::copy_(target, from.is_cpu() ? from : tensors_on_cpu(from), false);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) at::native::resize_(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

at::Scalar item(const at::Tensor& t) { return at::native::_local_scalar_dense_cpu(tensors_on_cpu(t)); }

constexpr c10::DispatchKeySet KEYS(c10::DispatchKey::PrivateUse1);
using Dtype = std::optional<at::ScalarType>;
using Layout = std::optional<at::Layout>;
using Device = std::optional<at::Device>;
using Flag = std::optional<bool>;
using Format = std::optional<at::MemoryFormat>;

at::Tensor empty(at::IntArrayRef size, Dtype dtype, Layout, Device, Flag, Format format) {
  return at::detail::empty_generic(size, &memory, KEYS, c10::dtype_or_default(dtype), format);
}
at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, Dtype dtype, Layout, Device, Flag) {
  return at::detail::empty_strided_generic(size, stride, &memory, KEYS, c10::dtype_or_default(dtype));
}
at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}
at::Tensor& set_source(at::Tensor& self, at::Storage source) { return at::native::set_(self, std::move(source)); }
at::Tensor& set_empty(at::Tensor& self) { return self.set_(at::empty({0}, self.options())); }
at::Tensor view(const at::Tensor& self, at::IntArrayRef size) { return at::native::view(self, size); }
const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size, Format format) {
  return at::native::resize_(self, size, format);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &view);
  m.impl("unfold", &at::native::unfold);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("resize_", &resize);
  m.impl("set_", &set_empty);
  m.impl("set_.source_Tensor", &at::native::set_tensor_);
  m.impl("set_.source_Storage", &set_source);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &item);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  c10::SetAllocator(TYPE, &memory);
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  m.def("seed", [](uint64_t seed) { default_generator().unsafeGetGeneratorImpl()->set_current_seed(seed); });
}
