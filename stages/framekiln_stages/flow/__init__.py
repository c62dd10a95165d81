"""Motion and camera shake, from dense optical flow between neighbouring frames."""

from framekiln_stages.flow.stage import Flow as Flow
