"""Matrix products: Troupe against OpenBLAS (numpy), or against torch.

Prints a Markdown table: medians over the rounds in GFLOP/s, with what a tenth of
the rounds is below and above, and Troupe's rate by the peer's, round by round.
"""

import statistics

from side import Refused, Sides, engine, geomean, head, parse, parser, python, ratios, row, spread

SHAPES = ["256x768x768", "256x3072x768", "256x768x3072", "1024x1024x1024", "2048x2048x2048", "256x50257x768", "64x64x64"]


def measure(o, threads, requests):
    """Rates of both sides by request: {request: (ours, theirs)}."""
    common = ["--threads", threads, "--dtype", o.dtype, "--seconds", o.seconds]
    rates = {r: ([], []) for r in requests}
    with Sides() as sides:
        ours = sides.add("Troupe", engine("gemm", "--kernels", o.kernels, *common))
        theirs = sides.add(o.peer, python("peer_gemm.py", "--library", o.peer, *common))
        for request in requests:
            for _ in range(o.rounds):
                for side, to in zip((ours, theirs), rates[request]):
                    to.append(side.ask(request)["gflops"]["median"])
    return rates


def table(o, threads, rates):
    """Print the rows, and the means below them."""
    all_ratios = []
    for request, (ours, theirs) in rates.items():
        shape, form = request.split()
        ratio = ratios(ours, theirs)
        all_ratios.append(statistics.median(ratio))
        row(shape.replace("x", "×"), form.upper(), threads, spread(ours), spread(theirs), spread(ratio, 2))
    row("geometric mean", "", threads, "", "", f"{geomean(all_ratios):.3f}")
    row("lowest", "", threads, "", "", f"{min(all_ratios):.2f}")


def scaling(o, requests, by_threads):
    """Print how much faster each side is with more threads."""
    first, last = o.threads[0], o.threads[-1]
    print()
    head("M×N×K", "form", f"Troupe, {last} threads by {first}", f"{o.peer}, {last} threads by {first}")
    for request in requests:
        m, n, k = map(int, request.split()[0].split("x"))
        if 2 * m * n * k < 0.2e9:
            continue
        gains = [statistics.median(by_threads[last][request][s]) / statistics.median(by_threads[first][request][s]) for s in (0, 1)]
        row(request.split()[0].replace("x", "×"), request.split()[1].upper(), *[f"{g:.2f}" for g in gains])


def main():
    p = parser(__doc__, rounds=5)
    p.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    p.add_argument("--peer", choices=["numpy", "torch"], default="numpy", help="numpy has OpenBLAS, and float32 alone")
    p.add_argument("--kernels", default="auto", help="Troupe's")
    p.add_argument("--shapes", nargs="+", default=SHAPES)
    p.add_argument("--forms", nargs="+", default=["nn", "nt", "tn"])
    p.add_argument("--seconds", type=float, default=0.3, help="of each turn (default: %(default)s)")
    o = parse(p)
    if o.dtype != "float32" and o.peer == "numpy":
        p.error("numpy multiplies float32; for bfloat16 give --peer torch")
    requests = [f"{shape} {form}" for shape in o.shapes for form in o.forms]
    head("M×N×K", "form", "threads", "Troupe, GFLOP/s", f"{o.peer}, GFLOP/s", "ratio")
    by_threads = {}
    for threads in o.threads:
        try:
            by_threads[threads] = measure(o, threads, requests)
        except Refused as e:
            p.exit(1, f"{e}\n")
        table(o, threads, by_threads[threads])
    if len(o.threads) > 1:
        scaling(o, requests, by_threads)


main()
