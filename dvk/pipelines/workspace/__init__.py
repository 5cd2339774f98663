"""`dvk workspace`: a folder for a coding agent, and the judge outside of it.

    DIR/                                what the agent works in; nothing in it decides a verdict
      SKILL.md  TASK.md  task/          rules and loop; the task with its graph; the files of the task
      skills/   example.py              skills of the library that fit; a worked example in the back end
      check     bench                   scripts that send one file to the judge
      log.jsonl  best.py             copies of the judge's log and of the fastest right file

    $DVK_HOME/workspaces/NAME-HASH/     a run folder of the judge; HASH is that of DIR's path
      workspace.json                    what was opened: the task's hash, back end, device, settings, environment
      task.jsonl  task/                 the judge's own copy of the task
      turns.jsonl                       every trial with its verdict
      judge.sock  judge.log             the judge while it runs

`check` and `bench` start the judge if none runs, with the environment of the user who opened the workspace. It reads no file of DIR: a
client sends the text of a candidate. It ends when it has been idle for long. Killed at any time, the log has every verdict that was given,
and a waiting client asks again.

    places.py    where the judge's folder of a workspace is
    opening.py   the judge's folder and the agent's
    texts.py     what the agent reads
    copies.py    files written into a folder that an agent may have changed
    trials.py    the judge's log, as rows for the agent
    judge.py     the judge
    asking.py    its clients

`dvk workspace collect` ends like `dvk optimize` (`pipelines.optimize.collected`).
"""
