"""Writes distributions.json: values of scipy (log-densities, entropies, quantiles, ...) and
divergences by numeric integration, which `tests/distributions.rs` compares with.

    pip install scipy numpy && python distributions.py
"""

import json

import numpy as np
from scipy import integrate, stats

# Name, arguments (ours), scipy's distribution, values.
CONTINUOUS = [
    ("Normal", [0.3, 1.7], stats.norm(0.3, 1.7), [-4.0, 0.3, 2.5]),
    ("LogNormal", [0.3, 0.6], stats.lognorm(0.6, scale=np.exp(0.3)), [0.2, 1.0, 4.0]),
    ("Uniform", [-1.5, 2.0], stats.uniform(-1.5, 3.5), [-1.2, 0.0, 1.9]),
    ("Exponential", [1.7], stats.expon(scale=1 / 1.7), [0.1, 1.0, 5.0]),
    ("Laplace", [0.3, 1.7], stats.laplace(0.3, 1.7), [-4.0, 0.2, 2.5]),
    ("Gamma", [0.4, 2.0], stats.gamma(0.4, scale=0.5), [0.001, 0.3, 2.5]),
    ("Gamma", [7.5, 0.5], stats.gamma(7.5, scale=2.0), [3.0, 15.0, 40.0]),
    ("Beta", [0.7, 2.5], stats.beta(0.7, 2.5), [0.01, 0.3, 0.95]),
    ("Beta", [4.0, 1.5], stats.beta(4.0, 1.5), [0.1, 0.6, 0.95]),
    ("StudentT", [3.5, 0.5, 1.2], stats.t(3.5, 0.5, 1.2), [-4.0, 0.5, 2.5]),
]

DISCRETE = [
    ("Bernoulli", [0.3], stats.bernoulli(0.3), [0.0, 1.0]),
    ("Binomial", [10, 0.3], stats.binom(10, 0.3), [0.0, 3.0, 10.0]),
    ("Poisson", [3.7], stats.poisson(3.7), [0.0, 3.0, 12.0]),
]

# Pairs of rows of the tables above by name and arguments, q after p.
CONTINUOUS_KL = [
    ("Normal", [0.3, 1.7], "Normal", [-0.5, 0.9], stats.norm(0.3, 1.7), stats.norm(-0.5, 0.9)),
    ("LogNormal", [0.3, 0.6], "LogNormal", [0.1, 0.9],
     stats.lognorm(0.6, scale=np.exp(0.3)), stats.lognorm(0.9, scale=np.exp(0.1))),
    ("Uniform", [-1.0, 2.0], "Uniform", [-1.5, 2.5], stats.uniform(-1, 3), stats.uniform(-1.5, 4)),
    ("Uniform", [-1.0, 2.0], "Normal", [0.3, 1.7], stats.uniform(-1, 3), stats.norm(0.3, 1.7)),
    ("Exponential", [1.7], "Exponential", [0.6], stats.expon(scale=1 / 1.7), stats.expon(scale=1 / 0.6)),
    ("Exponential", [1.7], "Gamma", [2.5, 0.5], stats.expon(scale=1 / 1.7), stats.gamma(2.5, scale=2.0)),
    ("Gamma", [2.5, 0.5], "Exponential", [1.7], stats.gamma(2.5, scale=2.0), stats.expon(scale=1 / 1.7)),
    ("Gamma", [2.5, 0.5], "Gamma", [4.0, 1.5], stats.gamma(2.5, scale=2.0), stats.gamma(4.0, scale=1 / 1.5)),
    ("Laplace", [0.3, 1.7], "Laplace", [-0.5, 0.9], stats.laplace(0.3, 1.7), stats.laplace(-0.5, 0.9)),
    ("Laplace", [0.3, 1.7], "Normal", [-0.5, 0.9], stats.laplace(0.3, 1.7), stats.norm(-0.5, 0.9)),
    ("Beta", [4.0, 1.5], "Beta", [2.0, 3.5], stats.beta(4.0, 1.5), stats.beta(2.0, 3.5)),
]

DISCRETE_KL = [
    ("Bernoulli", [0.3], "Bernoulli", [0.6], stats.bernoulli(0.3), stats.bernoulli(0.6)),
    ("Binomial", [10, 0.3], "Binomial", [10, 0.6], stats.binom(10, 0.3), stats.binom(10, 0.6)),
    ("Poisson", [3.7], "Poisson", [2.0], stats.poisson(3.7), stats.poisson(2.0)),
]


def continuous_kl(p, q):
    low, high = p.ppf(1e-18), p.isf(1e-18)
    points = [p.ppf(x) for x in np.linspace(0.02, 0.98, 13)] + [p.median(), q.median()]
    points = sorted(x for x in points if low < x < high)
    edges = [low, *points, high]
    f = lambda x: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)) if p.pdf(x) > 0 else 0.0
    parts = [integrate.quad(f, a, b, epsabs=1e-13, epsrel=1e-11)[0] for a, b in zip(edges, edges[1:])]
    return sum(parts)


def discrete_kl(p, q):
    k = np.arange(0, 200)
    k = k[p.pmf(k) > 1e-290]
    return float(np.sum(p.pmf(k) * (p.logpmf(k) - q.logpmf(k))))


def row(name, arguments, d, values, log):
    levels = [0.01, 0.4, 0.975]
    return {
        "name": name,
        "arguments": arguments,
        "values": values,
        "log_prob": [float(log(v)) for v in values],
        "cdf": [float(d.cdf(v)) for v in values],
        "levels": levels,
        "icdf": [float(d.ppf(u)) for u in levels],
        "entropy": float(d.entropy()),
        "mean": float(d.mean()),
        "variance": float(d.var()),
    }


def kl(p, a, q, b, value):
    return {"p": [p, a], "q": [q, b], "kl": value}


mean, covariance = [0.5, -1.0, 0.2], [[2.0, 0.3, -0.4], [0.3, 1.5, 0.2], [-0.4, 0.2, 0.8]]
vector = stats.multivariate_normal(mean, covariance)
alpha = [0.7, 2.0, 3.5]
dirichlet = stats.dirichlet(alpha)
at = [0.2, 0.3, 0.5]
out = {
    "rows": [row(n, a, d, v, d.logpdf) for n, a, d, v in CONTINUOUS]
    + [row(n, a, d, v, d.logpmf) for n, a, d, v in DISCRETE],
    "kl": [kl(p, a, q, b, continuous_kl(x, y)) for p, a, q, b, x, y in CONTINUOUS_KL]
    + [kl(p, a, q, b, discrete_kl(x, y)) for p, a, q, b, x, y in DISCRETE_KL],
    "multivariate_normal": {
        "mean": mean,
        "covariance": covariance,
        "value": at,
        "log_prob": float(vector.logpdf(at)),
        "entropy": float(vector.entropy()),
    },
    "dirichlet": {
        "concentration": alpha,
        "value": at,
        "log_prob": float(dirichlet.logpdf(at)),
        "entropy": float(dirichlet.entropy()),
        "mean": dirichlet.mean().tolist(),
        "variance": dirichlet.var().tolist(),
    },
}
with open("distributions.json", "w") as file:
    json.dump(out, file, indent=1)
    file.write("\n")
