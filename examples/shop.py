"""A spider that extracts the products of a shop: python examples/shop.py OUT CONTACT URL"""

import sys

import outrider


def on_page(page):
    for product in page.css("main.product"):
        name = product.css("h1::text").get()
        price = float(product.css(".price::attr(data-amount)").get())
        yield {"name": name, "price": price, "stock": int(product.css(".stock::text").re_first(r"\d+"))}


if __name__ == "__main__":
    outrider.crawl([sys.argv[3]], output=sys.argv[1], contact=sys.argv[2], on_page=on_page)
