"""`nmt train --devices N` with ranks that are forked instead of started: the same processes, signals and exit codes without
the seconds in which Python and torch load. `FORKED` is a `prelude` of `forked.run`; a test's own lines follow it:

    at_update(5, lambda trainer: own(signal.SIGKILL) if last() else None)
"""

FORKED = """
import itertools, mmap, os, signal, subprocess, sys, threading, time, traceback
import torch
from nmt_cli.training import launch, process_group
from nmt_cli.training.run import RunFolder
from nmt_cli.training.stopping import PendingSignal
from nmt_cli.training.trainer import Trainer
from nmt_cli.training.update import Updater
from nmt_cli.training.validation import Validator


class Forked(subprocess.Popen):
    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *_):
        self.pid = os.fork()
        if self.pid:
            self._child_created = True
            return
        code = 1
        try:
            os.setsid()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            os.closerange(3, 1024)
            os.environ.clear()
            os.environ.update(env)
            sys.argv = ["nmt", *args[3:]]
            from nmt_cli.__main__ import main
            main()
        except SystemExit as error:
            code = error.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)


def start(command, environment):
    return Forked([sys.executable, "-m", "nmt_cli", *command], env={**os.environ, **environment})


launch.start = start


def before(owner, name, action):
    was = getattr(owner, name)

    def instead(self, *arguments, **options):
        action(self)
        return was(self, *arguments, **options)

    setattr(owner, name, instead)


def rank():
    return int(os.environ.get("RANK", "-1"))


def last():
    return rank() == int(os.environ["WORLD_SIZE"]) - 1


def job(number):  # a signal to the process that the user started
    os.kill(os.getppid(), number)


def own(number):
    os.kill(os.getpid(), number)


def at_update(number, action):  # before update `number` is computed
    before(Trainer, "train_step", lambda trainer: action(trainer) if trainer.progress.update == number - 1 else None)


signals = []  # that this rank has received
arrived = mmap.mmap(-1, 64)  # by rank, shared by all: whether it has received one


def handle(self, number, frame, was=PendingSignal._handle):
    signals.append(number)
    was(self, number, frame)


PendingSignal._handle = handle


def watch(trainer):  # note the first signal in `arrived`, also while this rank waits for others and cannot handle it
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    threading.Thread(target=lambda: arrived.__setitem__(rank(), len(os.read(reads, 1))), daemon=True).start()


before(Trainer, "train", watch)


def signalled(count=1):  # wait until the launcher has passed so many signals on to this rank
    while len(signals) < count:
        time.sleep(0.01)


def everywhere():  # wait until the launcher has passed a signal on to every rank
    while not all(arrived[: int(os.environ["WORLD_SIZE"])]):
        time.sleep(0.01)


def forever():  # until a signal ends this process
    while True:
        time.sleep(3600)


def hold(file):  # say in a file that this process is here, and wait until the file is removed or a signal has come
    with open(file + ".aside", "w") as stream:
        stream.write(str(os.getpid()))
    os.rename(file + ".aside", file)
    while os.path.exists(file) and not signals:
        time.sleep(0.01)


def first():
    return rank() <= 0


def in_validation(action, where=first):
    before(Validator, "translate", lambda validator: action(validator) if where() else None)


validations = itertools.count()
"""
