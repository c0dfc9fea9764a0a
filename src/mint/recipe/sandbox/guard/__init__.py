"""The keeper of one sandbox, and the guards it forks: one between us and each program.

A guard starts its program, watches what it uses, ends it with everything it has started, and says
what happened. It stands apart because only a parent can be given the orphans of its descendants
(Linux: "subreaper"), whatever session or group they moved to; and making a whole training process one
would hand it the orphans of everything else that runs there. The keeper is there because a Python
takes tens of milliseconds to start, and a fork of a small one takes two.

It all runs in processes of its own, with the standard library only: what is imported here is there in
each of them. Our side of it is `mint.recipe.sandbox.keeper`.
"""
