/* A stand-in for libnvidia-ml.so.1: one device whose every reading is a different number, so that a
 * reading that lands in another's place is seen. */
int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d);
int nvmlDeviceGetClockInfo(void *d, int kind, unsigned *v);
int nvmlDeviceGetUtilizationRates(void *d, unsigned *v);
int nvmlDeviceGetPowerUsage(void *d, unsigned *v);
int nvmlDeviceGetTemperature(void *d, int kind, unsigned *v);
int nvmlDeviceGetCurrentClocksEventReasons(void *d, unsigned long long *v);
struct process {
    unsigned pid;
    unsigned long long used;
    unsigned a, b;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, struct process *p);

static int device;

int nvmlInit_v2(void)
{
    return 0;
}
int nvmlShutdown(void)
{
    return 0;
}
int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = 1;
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d)
{
    *d = &device;
    return i != 0;
}
int nvmlDeviceGetClockInfo(void *d, int kind, unsigned *v)
{
    *v = kind == 1 ? 1980 : 3201;
    return d != &device;
}
int nvmlDeviceGetUtilizationRates(void *d, unsigned *v)
{
    v[0] = 87;
    v[1] = 12;
    return d != &device;
}
int nvmlDeviceGetPowerUsage(void *d, unsigned *v)
{
    *v = 412345;
    return d != &device;
}
int nvmlDeviceGetTemperature(void *d, int kind, unsigned *v)
{
    *v = 51;
    return d != &device || kind != 0;
}
int nvmlDeviceGetCurrentClocksEventReasons(void *d, unsigned long long *v)
{
    *v = 0x40; /* hardware thermal slowdown */
    return d != &device;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, struct process *p)
{
    if (d != &device || *n < 1) return 1;
    *n = 1;
    p[0].pid = 1; /* never of the command's tree */
    p[0].used = 4096;
    return 0;
}
