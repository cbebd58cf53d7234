"""`nmt serve`: translations over HTTP, for clients that speak LibreTranslate's or DeepL's interface.

    uvicorn ──▶ middleware ──▶ libretranslate · deepl · own ──▶ translating.Texts ──▶ interface.Translator.submit
        the answer ◀────────── asyncio ◀────────────────────────────── future ◀──────── the model's workers

    settings        what `nmt serve` was asked for: one frozen object, passed whole
    models          model folders ──▶ translators by language pair; reloading
    translating     texts of a request ──▶ translated texts; limits on size, queue and time; closed connections
    parameters      JSON, form and query parameters of a request as one dictionary
    libretranslate  deepl  own    the interfaces: what a request says, and how answers and errors look
    keys  languages  detection  files    what they use
    middleware      limits on a request's body and time; what is counted and logged of each request
    metrics  logs   what is counted and written down: never a text
    app             all of it as one ASGI application
    server          sockets, signals, the end

Nothing here computes with tensors but `own`'s attention, in a thread: the event loop parses, waits and writes; workers
search (`decoding.service`).
"""
