"""The commands of ``meshwright``, one per module. Heavy imports happen when a command runs."""

from __future__ import annotations

from meshwright.commands.calibrate import calibrate
from meshwright.commands.export import export
from meshwright.commands.import_ import import_
from meshwright.commands.plan import plan
from meshwright.commands.profile import profile
from meshwright.commands.show import show
from meshwright.commands.simulate import simulate
from meshwright.commands.sweep import sweep
from meshwright.commands.validate import validate
from meshwright.commands.whatif import whatif

COMMANDS = (plan, simulate, whatif, validate, show, profile, calibrate, export, import_, sweep)
