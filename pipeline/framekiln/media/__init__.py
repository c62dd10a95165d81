"""Media files to packets of rows. Decoders, and the errors of untrusted files, stay inside this package.

    discovery/      an input to a list of MediaFile
    units           files decoded together: Unit
    source_reader   one file to a FrameSource: images/, video/
    packets/        a unit to packets, and a file's frames for the second pass

`av`, `PIL`, `cv2` and `simplejpeg` are imported by the modules of this package only.
"""
