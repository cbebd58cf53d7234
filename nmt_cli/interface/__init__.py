"""The commands as Python functions: `import nmt_cli as nmt` has the public names.

`cli` parses options, calls these functions, and prints.

    load ──▶ Translator: translate, score        translator.py  ◀── loading.py (model folders), options.py (searches)
    preprocess, train, average, export           commands.py
    evaluate                                     evaluation.py
    progress of each function                    progress.py

Options have the same names as on the command line, and errors are `NmtError`s with the same messages.
"""
