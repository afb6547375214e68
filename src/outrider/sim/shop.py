"""A shop on loopback for spiders: a front page, categories with pages of products, and the products themselves.

The model is pure, like that of `sim/web.py`, whose server serves it. It contains the items that a whole crawl extracts.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from random import Random

from outrider.sim.web import SUFFIX, WebAnswer

HOST = f"shop.{SUFFIX}"
PRODUCTS_PER_PAGE = 20
_CATEGORIES = ("tea", "coffee", "kettles", "cups")
_ADJECTIVES = ("green", "dark", "small", "old", "fine", "round", "blue & white", "“silent”")
_HTML = (("Content-Type", "text/html; charset=utf-8"),)


class ShopWeb:
    """A shop with `products` products; the same for the same seed."""

    def __init__(self, products: int = 940, *, seed: int = 1, port: int = 8080) -> None:
        self.hosts = (HOST,)
        self.port = port
        chance = Random(seed)
        self._products = [
            {
                "name": f"{chance.choice(_ADJECTIVES)} {_CATEGORIES[number % len(_CATEGORIES)]} {number}",
                "price": chance.randrange(100, 10_000) / 100,
                "stock": chance.randrange(50),
            }
            for number in range(products)
        ]

    def items(self) -> Iterator[dict[str, object]]:
        """The products, with the URL of the page of each."""
        for number, product in enumerate(self._products):
            yield {"url": f"http://{HOST}:{self.port}/product/{number}", **product}

    def seeds(self) -> tuple[str, ...]:
        """The front page."""
        return (f"http://{HOST}:{self.port}/",)

    def machine(self, host: str) -> str:
        """The machine of a host."""
        return host

    def closed(self, host: str, path: str) -> bool:
        """Whether robots.txt closes the path: never."""
        return False

    def faulty(self, host: str) -> bool:
        """Whether the host's robots.txt cannot be read: never."""
        return False

    def answer(self, host: str, path: str, now: float, *, takes_gzip: bool = False) -> WebAnswer:
        """The host's answer."""
        if path == "/robots.txt":
            return WebAnswer(200, (("Content-Type", "text/plain"),), b"User-agent: *\nDisallow:\n", 0.0)
        text = self._page(*path.strip("/").split("/"))
        if text is None:
            return WebAnswer(404, _HTML, b"<p>There is no such page.\n", 0.0)
        return WebAnswer(200, _HTML, f"<!doctype html><title>The shop</title>{text}\n".encode(), 0.0)

    def _page(self, kind: str, name: str = "", page: str = "0") -> str | None:
        if not kind:
            return "".join(f'<a href="/category/{each}/0">{each}</a> ' for each in _CATEGORIES)
        if kind == "product" and name.isdecimal() and int(name) < len(self._products):
            product = self._products[int(name)]
            return (
                f'<nav><a href="/">Shop</a></nav><main class="product"><h1>{html.escape(str(product["name"]))}</h1>'
                f'<p class="price" data-amount="{product["price"]}">€ {product["price"]:.2f}</p>'
                f'<p class="stock">{product["stock"]} in stock</p>'
                f"<table>{''.join(f'<tr><th>Property {n}<td>Value {n}' for n in range(20))}</table></main>"
            )
        if kind == "category" and name in _CATEGORIES and page.isdecimal():
            mine = range(_CATEGORIES.index(name), len(self._products), len(_CATEGORIES))
            some = mine[int(page) * PRODUCTS_PER_PAGE :][:PRODUCTS_PER_PAGE]
            names = {number: html.escape(str(self._products[number]["name"])) for number in some}
            rows = "".join(f'<li><a href="/product/{number}">{shown}</a>' for number, shown in names.items())
            more = len(mine) > (int(page) + 1) * PRODUCTS_PER_PAGE
            return f"<ul>{rows}</ul>" + f'<a rel="next" href="/category/{name}/{int(page) + 1}">next</a>' * more
        return None
