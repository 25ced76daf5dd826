//go:build gpu && linux && cgo

// Entry points of the driver, bound with dlopen before main: the program does not
// depend on the driver when it is linked, nor when it starts.
#include <dlfcn.h>
#include <stddef.h>
#include "include/cuda.h"

// Every prototype of include/cuda.h but the three at the end of this file.
#define SYMBOLS(X) \
  X(cuArray3DCreate_v2) X(cuArray3DGetDescriptor_v2) X(cuArrayCreate_v2) X(cuArrayDestroy) \
  X(cuArrayGetDescriptor_v2) X(cuCtxCreate_v2) X(cuCtxDestroy_v2) X(cuCtxDisablePeerAccess) \
  X(cuCtxEnablePeerAccess) X(cuCtxGetApiVersion) X(cuCtxGetCacheConfig) X(cuCtxGetCurrent) \
  X(cuCtxGetDevice) X(cuCtxGetFlags) X(cuCtxGetLimit) X(cuCtxGetSharedMemConfig) \
  X(cuCtxGetStreamPriorityRange) X(cuCtxPopCurrent_v2) X(cuCtxPushCurrent_v2) \
  X(cuCtxResetPersistingL2Cache) X(cuCtxSetCacheConfig) X(cuCtxSetCurrent) X(cuCtxSetLimit) \
  X(cuCtxSetSharedMemConfig) X(cuCtxSynchronize) X(cuDeviceCanAccessPeer) X(cuDeviceGet) \
  X(cuDeviceGetAttribute) X(cuDeviceGetName) X(cuDeviceGetP2PAttribute) X(cuDeviceGetUuid) \
  X(cuDevicePrimaryCtxGetState) X(cuDevicePrimaryCtxRelease_v2) X(cuDevicePrimaryCtxReset_v2) \
  X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxSetFlags_v2) X(cuDeviceTotalMem_v2) X(cuEventCreate) \
  X(cuEventDestroy_v2) X(cuEventElapsedTime) X(cuEventQuery) X(cuEventRecord) X(cuEventSynchronize) \
  X(cuFuncGetAttribute) X(cuFuncSetAttribute) X(cuFuncSetCacheConfig) X(cuFuncSetSharedMemConfig) \
  X(cuGetErrorName) X(cuGetErrorString) X(cuGraphAddChildGraphNode) X(cuGraphAddDependencies) \
  X(cuGraphAddEmptyNode) X(cuGraphAddHostNode) X(cuGraphAddKernelNode_v2) X(cuGraphAddMemcpyNode) \
  X(cuGraphAddMemsetNode) X(cuGraphClone) X(cuGraphCreate) X(cuGraphDestroy) X(cuGraphDestroyNode) \
  X(cuGraphExecDestroy) X(cuGraphGetEdges) X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) \
  X(cuLaunchKernel) X(cuLaunchKernelEx) X(cuLinkAddData_v2) X(cuLinkAddFile_v2) X(cuLinkComplete) X(cuLinkCreate_v2) \
  X(cuLinkDestroy) X(cuMemAdvise) X(cuMemAlloc_v2) X(cuMemAllocManaged) X(cuMemAllocPitch_v2) \
  X(cuMemFree_v2) X(cuMemFreeHost) X(cuMemGetAddressRange_v2) X(cuMemGetInfo_v2) X(cuMemHostAlloc) \
  X(cuMemPrefetchAsync) X(cuMemcpy) X(cuMemcpy2D_v2) X(cuMemcpy2DAsync_v2) X(cuMemcpy2DUnaligned_v2) \
  X(cuMemcpy3D_v2) X(cuMemcpy3DAsync_v2) X(cuMemcpy3DPeer) X(cuMemcpy3DPeerAsync) X(cuMemcpyAsync) \
  X(cuMemcpyAtoA_v2) X(cuMemcpyAtoD_v2) X(cuMemcpyAtoH_v2) X(cuMemcpyAtoHAsync_v2) X(cuMemcpyDtoA_v2) \
  X(cuMemcpyDtoD_v2) X(cuMemcpyDtoDAsync_v2) X(cuMemcpyDtoH_v2) X(cuMemcpyDtoHAsync_v2) \
  X(cuMemcpyHtoA_v2) X(cuMemcpyHtoAAsync_v2) X(cuMemcpyHtoD_v2) X(cuMemcpyHtoDAsync_v2) \
  X(cuMemcpyPeer) X(cuMemcpyPeerAsync) X(cuMemsetD16_v2) X(cuMemsetD16Async) X(cuMemsetD2D16_v2) \
  X(cuMemsetD2D16Async) X(cuMemsetD2D32_v2) X(cuMemsetD2D32Async) X(cuMemsetD2D8_v2) \
  X(cuMemsetD2D8Async) X(cuMemsetD32_v2) X(cuMemsetD32Async) X(cuMemsetD8_v2) X(cuMemsetD8Async) \
  X(cuModuleGetFunction) X(cuModuleGetGlobal_v2) X(cuModuleGetSurfRef) X(cuModuleGetTexRef) \
  X(cuModuleLoad) X(cuModuleLoadData) X(cuModuleLoadDataEx) X(cuModuleLoadFatBinary) X(cuModuleUnload) \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor) \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) X(cuOccupancyMaxPotentialBlockSize) \
  X(cuPointerGetAttribute) X(cuPointerSetAttribute) X(cuStreamAttachMemAsync) \
  X(cuStreamBeginCapture_v2) X(cuStreamCreate) X(cuStreamCreateWithPriority) X(cuStreamDestroy_v2) \
  X(cuStreamEndCapture) X(cuStreamGetFlags) X(cuStreamGetPriority) X(cuStreamQuery) \
  X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuStreamWaitValue32_v2) X(cuStreamWriteValue32_v2) \
  X(cuSurfRefGetArray) X(cuSurfRefSetArray) X(cuTexRefGetAddress_v2) X(cuTexRefGetAddressMode) \
  X(cuTexRefGetArray) X(cuTexRefGetBorderColor) X(cuTexRefGetFilterMode) X(cuTexRefGetFlags) \
  X(cuTexRefGetFormat) X(cuTexRefGetMaxAnisotropy) X(cuTexRefSetAddress_v2) X(cuTexRefSetAddress2D_v3) \
  X(cuTexRefSetAddressMode) X(cuTexRefSetArray) X(cuTexRefSetBorderColor) X(cuTexRefSetFilterMode) \
  X(cuTexRefSetFlags) X(cuTexRefSetFormat) X(cuTexRefSetMaxAnisotropy) X(cuTexRefSetMipmapFilterMode) \
  X(cuTexRefSetMipmapLevelBias) X(cuTexRefSetMipmapLevelClamp)

// A call to an entry point jumps to where its slot points.
#if defined(__x86_64__)
#define JUMP(name)                                                     \
  ".globl " #name "\n.hidden " #name "\n.type " #name ",@function\n"   \
  #name ": jmp *talf_slot_" #name "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(name)                                                     \
  ".globl " #name "\n.hidden " #name "\n.type " #name ",%function\n"   \
  #name ": adrp x16, talf_slot_" #name "\n"                             \
  " ldr x16, [x16, :lo12:talf_slot_" #name "]\n br x16\n"
#else
#error "the CUDA driver is bound on amd64 and arm64"
#endif

static CUresult unsupported(void) { return CUDA_ERROR_NOT_SUPPORTED; }

#define SLOT(name) __attribute__((visibility("hidden"))) void *talf_slot_##name = (void *)unsupported;
SYMBOLS(SLOT)
__asm__(".text\n" SYMBOLS(JUMP));

static const struct {
  const char *name;
  void **slot;
} table[] = {
#define ROW(name) {#name, &talf_slot_##name},
    SYMBOLS(ROW)};

static CUresult (*init)(unsigned);
static CUresult (*count)(int *);
static CUresult (*version)(int *);
static const char *failure = "";
static CUresult initialised = CUDA_ERROR_NO_DEVICE;

__attribute__((constructor)) static void bind(void) {
  void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!lib) {
    const char *why = dlerror();
    failure = why ? why : "dlopen failed";
    return;
  }
  init = (CUresult(*)(unsigned))dlsym(lib, "cuInit");
  count = (CUresult(*)(int *))dlsym(lib, "cuDeviceGetCount");
  version = (CUresult(*)(int *))dlsym(lib, "cuDriverGetVersion");
  if (!init || !count || !version) {
    failure = "libcuda.so.1 lacks cuInit, cuDeviceGetCount or cuDriverGetVersion";
    init = 0;
    return;
  }
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    void *f = dlsym(lib, table[i].name);
    if (f) *table[i].slot = f;
  }
}

// The initialisation of gorgonia.org/cu ends the process if cuInit fails, so
// failing means no devices here.
CUresult cuInit(unsigned flags) {
  if (init) initialised = init(flags);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *n) {
  *n = 0;
  return init && initialised == CUDA_SUCCESS ? count(n) : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *v) {
  *v = 0;
  return init ? version(v) : CUDA_SUCCESS;
}

const char *talf_driver_failure(void) { return failure; }
CUresult talf_driver_initialised(void) { return initialised; }

// talf_driver_missing returns the k-th entry point that the driver lacks, or null.
const char *talf_driver_missing(int k) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (*table[i].slot == (void *)unsupported && k-- == 0) return table[i].name;
  return 0;
}
