"""What the commands do, as Python: `import nmt_cli as nmt` has the public names; `cli` parses options, calls this, and prints.

    load ──▶ Translator: translate, score        translator.py  ◀── loading.py (model folders), options.py (searches), lines.py
    preprocess, train, average, export           commands.py
    evaluate                                     evaluation.py
    progress of any of them                      progress.py

Options have the names that they have on the command line, and errors are `NmtError`s with the same messages.
"""
