"""The scheduler: a pure admission core and a thin asyncio shell."""
