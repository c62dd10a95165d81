"""Files become packets here and nowhere else: decoders, and the faults foreign files bring, stay behind this door.

    listing   what is there               -> Media
    units     which files travel together -> Unit
    decode    their pixels and sound      -> Packet

`av`, `PIL`, `cv2` and `simplejpeg` are imported by the modules of this package only.
"""
