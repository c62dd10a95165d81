"""People's poses: 33 landmarks each, in the image and in metres, by MediaPipe's BlazePose."""

from framekiln_stages.pose.stage import Pose as Pose
