"""What a GPU gains: every line against a ceiling, or against the CPU cores, in one run.

Data are seeded and made on the GPU; what runs first is run once before the clock starts; times are
the least of several. Every answer is checked from the data. A line that fails says why, and the
rest goes on.

    python benchmarks/gpu.py [--only NAME ...] [--quick] [--no-cpu] [--device cuda]

`--quick` is for a look at whether all of it runs: small sizes, whose ratios say nothing.
"""

import argparse
import os
import tempfile
import time
import traceback

import numpy as np
import scipy.fft
import torch

import quadsense
from quadsense.measurements.gram import ExplicitGram, MatrixFreeGram
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.tensors import Tensors, elsewhere, tf32_allowed
from quadsense.methods import METHODS
from quadsense.methods.base import Problem
from quadsense.probes import masked_fft

REPEATS = 5


class Bench:
    """The device, the sizes, and the clock."""

    def __init__(self, device, quick, cpu):
        self.device, self.quick, self.cpu = torch.device(device), quick, cpu

    def size(self, whole, small):
        """One of two sizes."""
        return small if self.quick else whole

    def wait(self):
        """Until the device has done all it was told."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def least(self, call, repeats=REPEATS):
        """Seconds of a call, the least of several, after one that is not counted."""
        call()
        times = []
        for _ in range(repeats):
            self.wait()
            begin = time.perf_counter()
            call()
            self.wait()
            times.append(time.perf_counter() - begin)
        return min(times)

    def normal(self, *shape, seed=0):
        """Normal numbers on the device."""
        generator = torch.Generator(self.device).manual_seed(seed)
        return torch.randn(*shape, dtype=torch.float64, device=self.device, generator=generator)

    def rows(self, m, n, rank, noise=0.0, seed=0):
        """Gaussian rows, readings of a matrix of that rank and trace n, and what was added."""
        U = self.normal(m, n, seed=seed)
        X = self.normal(n, rank, seed=seed + 1) / np.sqrt(rank)
        b = ((U @ X) ** 2).sum(dim=1)
        return U, b + noise * self.normal(m, seed=seed + 2).clamp(-2.5, 2.5)

    def free(self):
        """Give memory back that nothing holds."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def compared(bench, name, U, b, wanted, unit="step", **question):
    """One solve on the device and the same on the CPU: seconds per step, and in all."""
    # Once before: what is loaded is loaded, and memory is taken.
    quadsense.solve(U, b, **{**question, "max_iter": 2})
    bench.wait()
    begin = time.perf_counter()
    result = quadsense.solve(U, b, **question)
    bench.wait()
    whole = time.perf_counter() - begin
    step = result.timings.get(name, whole) / max(result.n_iter, 1)
    parts = ", ".join(f"{key} {value:.2f}" for key, value in result.timings.items() if value > 5e-3)
    yield (
        f"{name}: device {result.status}, {result.n_iter} {unit}s, {1e3 * step:.1f} ms each, "
        f"{whole:.2f} s in all ({parts})"
    )
    begin = time.perf_counter()
    held = result.verify(U, b)
    yield f"{name}: verified {bool(held)} on the device in {time.perf_counter() - begin:.2f} s"
    if not bench.cpu:
        return
    U, b = U.cpu().numpy(), b.cpu().numpy()
    bench.free()
    begin = time.perf_counter()
    beside = quadsense.solve(U, b, **{"time_limit": 150.0, **question})
    on_cpu = time.perf_counter() - begin
    each = beside.timings.get(name, on_cpu) / max(beside.n_iter, 1)
    late = beside.status == "time_limit"
    yield (
        f"{name}: {os.cpu_count()} cores {beside.status}, {beside.n_iter} {unit}s, "
        f"{1e3 * each:.1f} ms each, {on_cpu:.2f} s in all"
    )
    in_all = f"at least {on_cpu / whole:.0f}x" if late else f"{on_cpu / whole:.0f}x"
    kept = ""
    if wanted is not None:
        kept = f"; {wanted}x a {unit} wanted: {'kept' if each / step >= wanted else 'MISSED'}"
    yield f"{name}: {each / step:.0f}x a {unit}, {in_all} in all{kept}"


def copying(bench):
    """Bytes per second that a copy reads and writes."""
    x = bench.normal(bench.size(2**30, 2**20))
    y = torch.empty_like(x)
    return 2 * x.nbytes / bench.least(lambda: y.copy_(x))


def ceilings(bench):
    """What the machine can do at best: double precision products, memory, the bus."""
    n = bench.size(8192, 512)
    A, B = bench.normal(n, n), bench.normal(n, n, seed=1)
    seconds = bench.least(lambda: A @ B)
    yield f"ceiling: double precision products, {2 * n**3 / seconds / 1e12:.1f} Tflop/s"
    a, b = A.float(), B.float()
    seconds = bench.least(lambda: a @ b)
    yield f"ceiling: single precision products, {2 * n**3 / seconds / 1e12:.1f} Tflop/s"
    yield f"ceiling: memory, {copying(bench) / 1e12:.2f} TB/s copied (read and written)"
    x = bench.normal(bench.size(2**30, 2**20))
    seconds = bench.least(lambda: x.sum())
    yield f"ceiling: memory, {x.nbytes / seconds / 1e12:.2f} TB/s read"
    n = bench.size(1024, 64)
    S = bench.normal(n, n)
    S = S + S.T
    seconds = bench.least(lambda: torch.linalg.eigh(S))
    host = S.cpu().numpy()
    beside = bench.least(lambda: np.linalg.eigh(host), 2)
    yield f"ceiling: eigh({n}), {1e3 * seconds:.0f} ms, {beside / seconds:.1f}x the cores"


def sweep(bench):
    """F(F*(y)) against the two plain products, and a step of gd and of cg around it."""
    m, n = bench.size((65_536, 4096), (2048, 256))
    U, b = bench.rows(m, n, 3)
    y = bench.normal(m)

    def plain():
        S = U.T @ (y[:, None] * U)
        return ((U @ S) * U).sum(dim=1)

    rows = Sensing(Tensors(U), factors=1.0)
    error = (plain() - rows.forward(rows.adjoint(y))).abs().max() / plain().abs().max()
    base = bench.least(plain)
    there, back = bench.least(lambda: rows.adjoint(y)), 0.0
    S = rows.adjoint(y)
    back = bench.least(lambda: rows.forward(S))
    ours = bench.least(lambda: rows.forward(rows.adjoint(y)))
    yield f"sweep: plain {1e3 * base:.1f} ms, {4 * m * n * n / base / 1e12:.1f} Tflop/s"
    yield f"sweep: ours {1e3 * ours:.1f} ms (adjoint {1e3 * there:.1f}, forward {1e3 * back:.1f})"
    yield f"sweep: relative difference {float(error):.1e}"
    kept = "kept" if ours <= 0.68 * base else "MISSED"
    yield f"sweep: {ours / base:.3f} of the plain one; at most 0.68 wanted: {kept}"
    delta = 1e-3 * float(b.abs().max())
    data = quadsense.Measurements(U, b, delta=delta)
    for name, K in (("gd", MatrixFreeGram(data.unit_rows)), ("cg", None)):
        step, taken = one_step(bench, name, data, K)
        kept = "kept" if step <= 0.68 * base else "MISSED"
        yield (
            f"sweep: {name}, K not formed, {1e3 * step:.1f} ms per step ({taken} timed), "
            f"{step / base:.3f} of the plain sweep; at most 0.68 wanted: {kept}"
        )
    asked = {"delta": 1e-2 * delta, "method": "cg", "prefer": "any"}
    quadsense.solve(U, b, **asked, max_iter=2)
    result = quadsense.solve(U, b, **asked, max_iter=12)
    step = result.timings["cg"] / max(result.n_iter, 1)
    yield (
        f"sweep: cg {result.status}, {result.n_iter} steps of {1e3 * step:.1f} ms, "
        f"{step / base:.3f} of the plain sweep, the check of the fit shared out among them"
    )


def one_step(bench, name, data, K=None, **options):
    """Seconds of a step of a method, with that K, and how many steps were timed."""
    scaled, known = data.scaled(), METHODS.options(name, options)
    problem = Problem(data.unit_rows, scaled.b, scaled.delta, 0.0, gram=K, options=known)
    method = METHODS[name]()
    program = method.prepare(problem)
    state = method.start(program)
    stride = max(2, method.stride(program))
    seconds = bench.least(lambda: method.advance(program, state, stride), 3)
    taken = method.advance(program, state, stride).iteration
    return seconds / taken, taken


def gram(bench):
    """Steps of gd with K formed, which read K once, against the bandwidth."""
    m, n = bench.size((32_768, 2048), (1024, 64))
    U, b = bench.rows(m, n, 3)
    data = quadsense.Measurements(U, b, delta=1e-6 * float(b.abs().max()))
    K = ExplicitGram(data.unit_rows)
    begin = time.perf_counter()
    K.form()
    bench.wait()
    yield f"gram: K of {8 * m * m / 2**30:.1f} GiB formed in {time.perf_counter() - begin:.2f} s"
    rate = copying(bench)
    vector = bench.normal(m)
    alone = bench.least(lambda: K.apply(vector))
    share = 8 * m * m / alone / rate
    yield f"gram: one product {1e3 * alone:.2f} ms, {share:.2f} of the measured bandwidth"
    step, taken = one_step(bench, "gd", data, K)
    share = 8 * m * m / step / rate
    kept = "kept" if share >= 0.85 else "MISSED"
    yield (
        f"gram: gd step {1e3 * step:.2f} ms ({taken} a stride), "
        f"{8 * m * m / step / 1e12:.2f} TB/s, {share:.2f} of the measured bandwidth; "
        f"0.85 wanted: {kept}"
    )


def cg(bench):
    m, n = bench.size((200_000, 2048), (3000, 64))
    U, b = bench.rows(m, n, 3)
    question = {"delta": 1e-3 * float(b.abs().max()), "prefer": "any", "method": "cg"}
    yield from compared(bench, "cg", U, b, 40, **question, max_iter=bench.size(12, 12))


def looks(bench):
    """Steps of cg so small that waiting shows: looked at once per stride, and one by one."""
    m, n = bench.size((4000, 256), (1000, 64))
    U, b = bench.rows(m, n, 3)
    data = quadsense.Measurements(U, b, delta=1e-12 * float(b.abs().max()))
    scaled, method = data.scaled(), METHODS["cg"]()
    program = method.prepare(Problem(data.unit_rows, scaled.b, scaled.delta, 0.0))
    first = method.advance(program, method.start(program), 12)  # the rate is known by then

    def steps(stride):
        state = first
        for _ in range(12 // stride):
            state = method.advance(program, state, stride)
        return state

    own = method.stride(program)
    taken = steps(own).iteration - first.iteration
    each, one = (bench.least(lambda stride=stride: steps(stride)) / taken for stride in (own, 1))
    yield (
        f"looks: cg n = {n}, m = {m}, {taken} steps: {1e3 * each:.3f} ms each in strides of {own}, "
        f"{1e3 * one:.3f} looked at one by one: {one / each:.2f}x"
    )


def factored(bench):
    m, n, r = bench.size((400_000, 4096, 8), (6000, 128, 3))
    U, b = bench.rows(m, n, r)
    question = {"delta": 1e-4 * float(b.abs().max()), "prefer": "any", "rank": r, "rng": 0}
    yield from compared(bench, "low_rank", U, b, 40, **question)


def psd(bench):
    m, n = bench.size((50_000, 1024), (1500, 64))
    U, b = bench.rows(m, n, n // 8)
    question = {"delta": 1e-3 * float(b.abs().max()), "prefer": "any", "psd": True}
    yield from compared(bench, "psd", U, b, 20, **question)


def least_squares(bench):
    """Least squares in the cone, of readings that are off."""
    m, n = bench.size((50_000, 1024), (1500, 64))
    U, b = bench.rows(m, n, n // 8, noise=0.1)
    question = {"prefer": "least_squares", "psd": True, "method": "least_squares"}
    yield from compared(bench, "least_squares", U, b, None, **question)


def conic(bench):
    """The least trace within intervals: as many unknowns as there are rows."""
    m, n = bench.size((5000, 100), (300, 20))
    U, b = bench.rows(m, n, 5)
    question = {"prefer": "min_trace", "psd": True, "method": "conic"}
    question["delta"] = 1e-3 * float(b.abs().max())
    yield from compared(bench, "conic", U, b, None, **question)


def tf32(bench):
    """What `allow_tf32` gains: a product, a step and a solve, each next to itself in float64."""
    n = bench.size(8192, 512)
    A = bench.normal(n, n).float()
    with tf32_allowed(torch):
        seconds = bench.least(lambda: A @ A)
    yield f"tf32: products, {2 * n**3 / seconds / 1e12:.0f} Tflop/s"
    m, n = bench.size((65_536, 4096), (2048, 256))
    U, b = bench.rows(m, n, 3)
    data = quadsense.Measurements(U, b, delta=1e-5 * float(b.abs().max()))
    wide = data.unit_rows.at_work(tf32=True)
    coarse = wide.single
    y = wide.placed(np.random.default_rng(0).standard_normal(m))
    truth = wide.forward(wide.adjoint(y))
    error = float(np.linalg.norm(coarse.forward(coarse.adjoint(y)) - truth))
    double = bench.least(lambda: wide.forward(wide.adjoint(y)))
    single = bench.least(lambda: coarse.forward(coarse.adjoint(y)))
    yield (
        f"tf32: sweep {1e3 * single:.1f} ms, float64 {1e3 * double:.1f}: {double / single:.1f}x; "
        f"relative difference {error / float(np.linalg.norm(truth)):.1e}"
    )
    steps = [one_step(bench, "cg", data, allow_tf32=allowed)[0] for allowed in (True, False)]
    yield (
        f"tf32: cg step {1e3 * steps[0]:.1f} ms, float64 {1e3 * steps[1]:.1f}: "
        f"{steps[1] / steps[0]:.1f}x"
    )
    for digits in (2, 3, 5, 8):
        asked = {"method": "cg", "prefer": "any", "delta": 10.0**-digits * float(b.abs().max())}
        yield twice(bench, f"cg to 1e-{digits}", U, b, asked)
    # A fit well inside the cone, which the symmetric one is.
    b = (U * U).sum(dim=1) + 0.1 * b
    asked = {"psd": True, "prefer": "any", "delta": 1e-3 * float(b.abs().max())}
    yield twice(bench, "psd to 1e-3", U, b, asked)


def twice(bench, name, U, b, asked):
    """A solve in float64 and the same with TF32: a line."""
    parts, spent = [], []
    for allowed in (False, True):
        quadsense.solve(U, b, **asked, allow_tf32=allowed, max_iter=2)
        bench.wait()
        begin = time.perf_counter()
        result = quadsense.solve(U, b, **asked, allow_tf32=allowed)
        bench.wait()
        spent.append(time.perf_counter() - begin)
        held = "verified" if result.verify(U, b) else "NOT VERIFIED"
        parts.append(f"{result.status}, {result.n_iter} steps, {1e3 * spent[-1]:.0f} ms, {held}")
    return f"tf32: {name}: {parts[1]}; float64 {parts[0]}: {spent[0] / spent[1]:.1f}x"


def minimax(bench):
    m, n = bench.size((200_000, 100), (4000, 20))
    U, b = bench.rows(m, n, 5, noise=0.1)
    yield from compared(bench, "minimax", U, b, 40, method="minimax")


def held_there(bench, U, y, S):
    """How far S is from F*(y) of rows held on the device, and the seconds of that."""
    rows = Sensing(Tensors(U.to(bench.device)), factors=1.0)
    error = float((rows.adjoint(y) - S).abs().max() / S.abs().max())
    return error, bench.least(lambda: rows.adjoint(y), 2)


def stream(bench):
    """Rows in the memory of the host: the time of a sweep against that of the bus."""
    m, n = bench.size((400_000, 2048), (4096, 128))
    U = torch.randn(m, n, dtype=torch.float64)
    begin = time.perf_counter()
    kind = elsewhere(U, bench.device)
    bench.wait()
    seconds = time.perf_counter() - begin
    yield f"stream: {U.nbytes / 2**30:.1f} GiB pinned and looked at in {seconds:.2f} s"
    rows = Sensing(kind, factors=1.0)
    y = bench.normal(m)
    bus = 8 * bench.least(lambda: U[: m // 8].to(bench.device, non_blocking=True), 3)
    S = rows.adjoint(y)
    once = bench.least(lambda: rows.adjoint(y), 2)
    error, near = held_there(bench, U, y, S)
    yield (
        f"stream: adjoint {once:.3f} s, of rows held there {near:.3f} s, over the bus alone "
        f"{bus:.3f} s ({U.nbytes / bus / 1e9:.0f} GB/s): {max(bus, near) / once:.2f} of the best "
        f"possible; relative difference {error:.1e}"
    )
    X = torch.randn(n, 3, dtype=torch.float64)
    b = ((U @ X) ** 2).sum(dim=1)
    bench.free()
    data = quadsense.Measurements(U, b, delta=1e-3 * float(b.max())).on(bench.device)
    begin = time.perf_counter()
    result = quadsense.solve(data, rank=3, rng=0, prefer="any")
    yield (
        f"stream: rank 3, {result.status}, {result.n_iter} steps in "
        f"{time.perf_counter() - begin:.2f} s, on {result.A.device}"
    )


def cluster(bench):
    """Rows in a file on two Dask workers: with the GPU, and on a core each."""
    from distributed import Client, LocalCluster

    m, n = bench.size((100_000, 1024), (4000, 64))
    U, b = bench.rows(m, n, 8)
    delta, found, seconds = 1e-3 * float(b.abs().max()), [], []
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/U.npy", U.cpu().numpy())
        np.save(f"{folder}/b.npy", b.cpu().numpy())
        for seen in ("0", ""):
            with (
                LocalCluster(
                    n_workers=2,
                    threads_per_worker=1,
                    dashboard_address=None,
                    env={"CUDA_VISIBLE_DEVICES": seen},
                ) as workers,
                Client(workers) as client,
            ):
                data = quadsense.Measurements.open(folder).on(client)
                quadsense.solve(data, delta=delta, method="cg", prefer="any", max_iter=1)
                begin = time.perf_counter()
                result = quadsense.solve(data, delta=delta, method="cg", prefer="any")
                seconds.append((time.perf_counter() - begin) / result.n_iter)
                found.append(result.A)
                where = "the GPU" if seen else "a core each"
                yield (
                    f"cluster: two workers with {where}, {result.status}, {result.n_iter} steps of "
                    f"{1e3 * seconds[-1]:.0f} ms, verified {bool(result.verify(data))}"
                )
    apart = np.linalg.norm(found[0] - found[1]) / np.linalg.norm(found[1])
    yield f"cluster: {seconds[1] / seconds[0]:.1f}x per step, A differs by {apart:.1e}"


def octanary(bench, count, side):
    """Masks as [Candes, Li, Soltanolkotabi 2015] have them, and noise as the image behind them."""
    generator = torch.Generator(bench.device).manual_seed(0)
    named = {"device": bench.device, "generator": generator}
    shape = (count, side, side)
    turns = torch.tensor([1.0, 1j, -1.0, -1j], dtype=torch.complex128, device=bench.device)
    masks = turns[torch.randint(4, shape, **named)]
    masks *= torch.where(torch.rand(shape, **named) < 0.8, 0.5**0.5, 3.0**0.5)
    return masks, torch.complex(bench.normal(side, side), bench.normal(side, side, seed=1))


def imaged(bench, masks, image, by_torch):
    """Seconds of a solve, its result, and the relative error up to a global phase."""
    b = (torch.fft.fft2(masks * image).abs() ** 2).reshape(-1)
    shape, asked = tuple(image.shape), {"rank": 1, "conjugate": True, "rng": 0}
    if by_torch:
        probes = masked_fft(masks, shape)
        probes.by_torch = Tensors.by_torch
    else:
        probes, b = masked_fft(masks.cpu().numpy(), shape), b.cpu().numpy()
    asked["delta"] = 5e-5 * float(b.mean())  # so that the image errs by less than 1e-5
    quadsense.solve(probes, b, **asked, max_iter=2)
    bench.wait()
    begin = time.perf_counter()
    result = quadsense.solve(probes, b, **asked)
    bench.wait()
    seconds = time.perf_counter() - begin
    x = torch.as_tensor(result.matrix.factor[:, 0], device=image.device).reshape(shape)
    turn = torch.vdot(x.reshape(-1), image.reshape(-1))
    error = float(torch.linalg.vector_norm(x * (turn / turn.abs()) - image))
    return seconds, result, error / float(torch.linalg.vector_norm(image))


def diffraction(bench):
    """Images from intensities behind masks: a million pixels, and fewer against the cores."""
    seconds = {}
    sides = bench.size(
        [(1000, True), (320, True), (320, False)], [(64, True), (32, True), (32, False)]
    )
    for side, by_torch in sides:
        if not (by_torch or bench.cpu):
            continue
        masks, image = octanary(bench, 12, side)
        with scipy.fft.set_workers(-1):
            taken, result, error = imaged(bench, masks, image, by_torch)
        seconds[side, by_torch] = taken
        where = "device" if by_torch else f"{os.cpu_count()} cores"
        parts = ", ".join(
            f"{key} {part:.2f}" for key, part in result.timings.items() if part > 5e-3
        )
        kept = "kept" if result.status == "met" and error <= 1e-5 else "MISSED"
        yield (
            f"diffraction: n = {side * side}, 12 masks, {where} {result.status}, {result.n_iter} "
            f"steps, {taken:.3f} s in all ({parts}), relative error {error:.1e}; at most 1e-5 "
            f"wanted: {kept}"
        )
        if by_torch:
            passes = bench.least(lambda m=masks, x=image: torch.fft.fft2(m * x))
            yield f"diffraction: n = {side * side}, all transforms once take {1e3 * passes:.2f} ms"
        del masks, image, result
        bench.free()
    side = sides[-1][0]
    if (side, False) in seconds:
        yield (
            f"diffraction: n = {side * side}, "
            f"{seconds[side, False] / seconds[side, True]:.0f}x the cores"
        )


TASKS = {
    "ceilings": ceilings,
    "sweep": sweep,
    "gram": gram,
    "cg": cg,
    "looks": looks,
    "low_rank": factored,
    "psd": psd,
    "least_squares": least_squares,
    "conic": conic,
    "tf32": tf32,
    "minimax": minimax,
    "stream": stream,
    "cluster": cluster,
    "diffraction": diffraction,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=sorted(TASKS), default=list(TASKS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-cpu", action="store_true", help="leave the CPU's side out")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--by-torch", action="store_true", help="on a CPU too")
    options = parser.parse_args()
    Tensors.by_torch = options.by_torch
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        raise SystemExit("there is no CUDA device here: --device cpu tries the script itself")
    where = options.device
    if where.startswith("cuda"):
        where = torch.cuda.get_device_name()
    print(f"{where}, torch {torch.__version__}, NumPy {np.__version__}, {os.cpu_count()} cores")
    bench = Bench(options.device, options.quick, not options.no_cpu)
    for name in options.only:
        begin = time.perf_counter()
        try:
            for line in TASKS[name](bench):
                print(line, flush=True)
        except Exception as error:  # the others are still worth running
            last = traceback.extract_tb(error.__traceback__)[-6:]
            places = " < ".join(f"{os.path.basename(f.filename)}:{f.lineno}" for f in last[::-1])
            print(f"{name}: FAILED, {type(error).__name__}: {error} ({places})", flush=True)
        bench.free()
        print(f"{name}: {time.perf_counter() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
