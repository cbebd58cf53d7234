"""`nmt serve`: translations over HTTP, for clients that speak LibreTranslate's or DeepL's interface.

    uvicorn ──▶ middleware ──▶ libretranslate · deepl · own ──▶ translating.Texts ──▶ interface.Translator.submit
        the answer ◀────────── asyncio ◀────────────────────────────── future ◀──────── the model's workers

    settings        the options of `nmt serve`: one frozen object, passed whole
    models          model folders ──▶ translators by language pair; reloading
    translating     texts of a request ──▶ translated texts; limits on size, queue and time; closed connections
    parameters      JSON, form and query parameters of a request as one dictionary
    libretranslate  deepl  own    the interfaces: parameters of requests, forms of answers and errors
    keys  files                     helpers of the interfaces
    middleware      limits on a request's body and time; counts and logs each request
    metrics  logs   the counters and the log: they never contain a text
    app             all of these as one ASGI application
    server          sockets, signals, shutdown

The event loop parses, waits and writes; the threads of the models search (`translation.pool`). The attention of `own`
is computed in a thread of its own.
"""
