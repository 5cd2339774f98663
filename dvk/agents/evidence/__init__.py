"""What measured plans say of skills: gains looked up in a table, labels for selection, growth of a library.

gains     the gain of a skill on one task, and over many
facts     facts of a table's tasks
standing  what a skill's evidence says on a machine; ranking
labels    the right choice among offered skills; precision and recall of a selection
mining    candidates: conditions × changes of plan
growth    mined, validated on other tasks, admitted or refused with the reason; retired
"""
