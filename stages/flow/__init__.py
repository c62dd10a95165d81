"""Motion, camera shake and cuts, from dense optical flow between neighbouring frames."""

from stages.flow.stage import Flow as Flow
