// The device "npu" of the tests: PyTorch's PrivateUse1 backend over the host's memory, with the CPU's kernels behind it.
//
// It is strict where the real device is: tensors of two devices do not mix, complex numbers are not computed, and what is computed in
// float64, which the real device does slowly or not at all, is remembered.
// The process group "hccl" hands the tensors' memory to gloo, refuses tensors of the CPU, and knows no average, as HCCL.

#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

namespace {

using at::Tensor;
constexpr auto NPU = c10::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex DEVICES = 2;
thread_local c10::DeviceIndex current = 0;

// ---- memory

size_t allocated = 0, peak = 0;

struct Block {
  void* data;
  size_t bytes;
};

void free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  allocated -= block->bytes;
  free(block->data);
  delete block;
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    auto* block = new Block{bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : nullptr, bytes};
    allocated += bytes;
    peak = std::max(peak, allocated);
    return {block->data, block, &free_block, c10::Device(NPU, current)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { memcpy(to, from, bytes); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t = {0, 0}) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = allocated;
    stats.allocated_bytes[0].peak = peak;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override { peak = allocated; }
} allocator;

// A tensor of the CPU over the same memory, which lives as long as either.
Tensor host(const Tensor& tensor) {
  auto* owner = new c10::Storage(tensor.storage());
  c10::DataPtr data(owner->mutable_data(), owner, [](void* context) { delete static_cast<c10::Storage*>(context); }, c10::kCPU);
  auto storage = c10::Storage(c10::Storage::use_byte_size_t(), owner->nbytes(), std::move(data), nullptr, false);
  auto alias = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return alias;
}

// ---- devices, streams, random numbers

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return NPU; }
  c10::Device exchangeDevice(c10::Device device) const override {
    auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {NPU, current}; }
  void setDevice(c10::Device device) const override { current = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current = device.index(); }
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream getNewStream(c10::Device device, int) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return DEVICES; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// Keeps a seed. What it would be for draws from the CPU's generator, whose kernels do the work.
struct Generator final : c10::GeneratorImpl {
  uint64_t value = c10::default_rng_seed_val;
  explicit Generator(c10::DeviceIndex index)
      : GeneratorImpl({NPU, index}, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}
  void set_current_seed(uint64_t seed) override { value = seed; }
  uint64_t current_seed() const override { return value; }
  uint64_t seed() override { return value = c10::detail::getNonDeterministicRandom(); }
  void set_offset(uint64_t) override {}
  uint64_t get_offset() const override { return 0; }
  void set_state(const c10::TensorImpl& state) override { memcpy(&value, state.data(), sizeof(value)); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::empty({sizeof(value)}, at::kByte);
    memcpy(state.mutable_data_ptr(), &value, sizeof(value));
    return state.getIntrusivePtr();
  }
  Generator* clone_impl() const override {
    auto* copy = new Generator(device().index());
    copy->value = value;
    return copy;
  }
};

const at::Generator& default_generator(c10::DeviceIndex index) {
  static std::vector<at::Generator> generators{at::make_generator<Generator>(0), at::make_generator<Generator>(1)};
  return generators.at(index < 0 ? current : index);
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return DEVICES; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(c10::DeviceIndex index) const override { current = index; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return at::make_generator<Generator>(index); }
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(c10::kCPU); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    at::native::resize_bytes_cpu(storage.unsafeGetStorageImpl(), bytes);
  }
} hooks;

// ---- operators

Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device> device,
             std::optional<bool>, std::optional<at::MemoryFormat> format) {
  c10::DeviceGuard guard(c10::Device(NPU, device && device->has_index() ? device->index() : current));
  return at::detail::empty_generic_symint(
      size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                     std::optional<at::Device> device, std::optional<bool>) {
  c10::DeviceGuard guard(c10::Device(NPU, device && device->has_index() ? device->index() : current));
  return at::detail::empty_strided_symint_generic(
      size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

int64_t copies_ahead = 0;  // from the host, which may free that memory at once

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  copies_ahead += non_blocking && from.is_cpu();
  (to.is_cpu() ? to : host(to)).copy_(from.is_cpu() ? from : host(from));
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

Tensor& set_tensor(Tensor& self, const Tensor& source) {
  return self.set_(source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, at::IntArrayRef stride,
                   at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups) {
  auto host_bias = bias && bias->defined() ? std::optional(host(*bias)) : std::nullopt;
  return at::convolution(host(input), host(weight), host_bias, stride, padding, dilation, transposed, output_padding, groups)
      .to(input.device());
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& grad, const Tensor& input, const Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding,
    at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> mask) {
  auto found = at::convolution_backward(host(grad), host(input), host(weight), at::IntArrayRef(weight.size(0)), stride, padding,
                                        dilation, transposed, output_padding, groups, mask);
  auto back = [&](const Tensor& tensor) { return tensor.defined() ? tensor.to(input.device()) : tensor; };
  return {back(std::get<0>(found)), back(std::get<1>(found)), back(std::get<2>(found))};
}

std::set<std::string> float64_operators;

void check(const c10::OperatorHandle& op, const Tensor& tensor) {
  if (!tensor.defined()) return;
  const auto& name = op.operator_name().name;
  TORCH_CHECK(tensor.device().type() == NPU || tensor.dim() == 0 || name == "aten::index" || name == "aten::_to_cpu",
              name, ": expected all tensors on npu, found one on ", tensor.device());
  TORCH_CHECK(!tensor.is_complex(), name, ": not implemented for ", tensor.dtype(), " on npu");
  if (tensor.device().type() == NPU && tensor.dtype() == at::kDouble && name != "aten::_to_cpu") float64_operators.insert(name);
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  for (const auto& argument : torch::jit::last(*stack, op.schema().arguments().size())) {
    if (argument.isTensor()) check(op, argument.toTensor());
    if (argument.isTensorList())
      for (const Tensor& tensor : argument.toTensorList()) check(op, tensor);
  }
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("set_.source_Storage", &at::native::set_);
  m.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
  m.impl("resize_", &at::native::resize_);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("view.dtype", &at::native::view_dtype);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("convolution_overrideable", &convolution);
  m.impl("convolution_backward_overrideable", &convolution_backward);
}

// What autocast computes in bf16 and what in fp32, of what the models use.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(mm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(addmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(bmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(baddbmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv2d, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(scaled_dot_product_attention, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(layer_norm, fp32)
  KERNEL_PRIVATEUSEONE(pow, Tensor_Scalar, fp32)
  KERNEL_PRIVATEUSEONE(rsqrt, fp32)
  KERNEL_PRIVATEUSEONE(softmax, int, fp32)
  KERNEL_PRIVATEUSEONE(log_softmax, int, fp32)
  KERNEL_PRIVATEUSEONE(cross_entropy_loss, fp32)
  KERNEL_PRIVATEUSEONE(mse_loss, fp32)
}

// ---- processes

struct Hccl final : c10d::Backend {
  using Tensors = std::vector<Tensor>;
  using Work = c10::intrusive_ptr<c10d::Work>;
  c10::intrusive_ptr<c10d::Backend> gloo;

  explicit Hccl(c10::intrusive_ptr<c10d::Backend> group) : Backend(group->getRank(), group->getSize()), gloo(std::move(group)) {}
  const std::string getBackendName() const override { return "hccl"; }

  static Tensor memory(const Tensor& tensor) {
    TORCH_CHECK(tensor.device().type() == NPU, "hccl: a tensor of ", tensor.device());
    return host(tensor);
  }
  static Tensors memory(const Tensors& tensors) {
    Tensors found;
    for (const auto& tensor : tensors) found.push_back(memory(tensor));
    return found;
  }
  static void check(const c10d::ReduceOp& op) {
    TORCH_CHECK(op != c10d::ReduceOp::AVG, "hccl: no such reduction: average");
  }

  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    auto host = memory(tensors);
    return gloo->broadcast(host, options);
  }
  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    check(options.reduceOp);
    auto host = memory(tensors);
    return gloo->allreduce(host, options);
  }
  Work allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    std::vector<Tensors> host_outputs;
    for (const auto& tensors : outputs) host_outputs.push_back(memory(tensors));
    auto host = memory(inputs);
    return gloo->allgather(host_outputs, host, options);
  }
  Work _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& options) override {
    auto to = memory(output), from = memory(input);
    return gloo->_allgather_base(to, from, options);
  }
  Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    auto to = memory(outputs), from = memory(inputs);
    return gloo->allgather_into_tensor_coalesced(to, from, options);
  }
  Work _reduce_scatter_base(Tensor& output, Tensor& input, const c10d::ReduceScatterOptions& options) override {
    check(options.reduceOp);
    auto to = memory(output), from = memory(input);
    return gloo->_reduce_scatter_base(to, from, options);
  }
  Work barrier(const c10d::BarrierOptions& options) override { return gloo->barrier(options); }
};

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  c10::SetAllocator(NPU, &allocator);
  at::RegisterPrivateUse1HooksInterface(&hooks);
  m.def("default_generator", [](c10::DeviceIndex index) { return default_generator(index); });
  m.def("current_device", [] { return current; });
  m.def("set_device", [](c10::DeviceIndex index) { current = index; });
  m.def("allocated", [] { return allocated; });
  m.def("float64_operators", [] { return float64_operators; });
  m.def("copies_ahead", [] { return copies_ahead; });
  m.def("peak", [] { return peak; });
  m.def("hccl", [](const c10::intrusive_ptr<c10d::Backend>& gloo) -> c10::intrusive_ptr<c10d::Backend> {
    return c10::make_intrusive<Hccl>(gloo);
  });
}
