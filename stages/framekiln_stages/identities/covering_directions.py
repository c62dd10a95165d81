"""Directions in which coverings move embeddings, whoever wears them. Without them strangers in hoods are strangers.

Chosen on 372 photos of 120 people of Labeled Faces in the Wild, each with ten drawn coverings (sunglasses, mask, hand,
hat, strands and a curtain of hair over an eye, hoods with and without folds, scarf, balaclava): the six directions in
which embeddings of the same photo with and without a covering differ most. More than six cost recognition of bare
faces (docs/log.md).
"""

import base64

import numpy as np
from numpy.typing import NDArray

_COUNT = 6
_STORED = {
    "mobilefacenet": (  # numbers of 8 bits
        "TsI9I=R?c6LOl`L2Rat-3e@EfL;vsN`u@1103-v^C-Upr=iN3MvmN)_3jq(=*aGJI?)yFi^6U)HuL%D~As`VQ*aPYhxY}JG695|D>|O;A)%6`z"
        "Tp|6c(C-5?=KKoW)Z{P@?NIls9{eHF`wONbG0wdX4>8j!PzNB<sY@B_=NA3#`9m_s0+|omFv|t})3w<XJ>U@wIuA6!+_!W88S5j|?Y{{@6)G6U"
        "IqVwu{vPoy5Azzu$=Wg<{QvCs&=OD2k_9m;3@GdU0P*kC<0|O>0rvj)YQrbw??w^mo(uOC1<=?!#1Gs5;?(Z~`xxsD84X7r%hEzA76#PaC*3>v"
        "9ODW=4h!<-3cl|72M)~lAV}Bg8AmMhA|4!BM)%?R(9$st^9>)<@aHe~0`(Nl^V+-}LHZu}6d?b>;s-p$bFL2Y+i3?47%Jq?f6%D|AQcWIDc|eu"
        "v&Ie-?V30%0Mi7_*gD$F2Rj?+JqXm|^e6D<_c#*7_#o{u<;a-(1thKSItnJ%@7xO(;{XF%C*eT}@ghS(4&e<?CF0}u)+hGg*WUFe?X?j2?G%!{"
        "|Iy_lBI5Dm&HMHU)V<KOB=X7hA37-;<iZm5+7DFhA|$B~;O+hpA}AO93%@z}KTr1d7nJ9w76GmM1o{&!H#iy;*3AJS9oqUmVj2(b8#4wfDeEQe"
        "8v)A*F}R@|!H^~nw)-s!@!rnO;?N5Q^RL0XyC&N}7Yn{6&CUTJ8Og%$*B{sN2j)``CNA&P=^70k{^sKu@%f%SQTqS!{~!G72)zdhJMY=r4Y33X"
        "CDr&j^*Of5<v1<O5=9OR<^%p18Vk=f?8+b;_wMXo1~1SGHx2th2i4a*YPTy5;o!r_`_V~E<3An)DnLBwBI8K-K;PRJCBrK16&V;Q5Agm3@$|;H"
        "BKEon_yXj|@9XpW@Y>D!{XjG#!{jj;)6e?&^TbWq_|E?wDa$1j8_pcQ$@k(-vHc+`#|*9lD-aMq)-wvu"
    )
}
"""By recognition network. Of other networks nothing is taken away."""


def leave_out_coverings(vectors: NDArray[np.float32], network: str | None) -> NDArray[np.float32]:
    """Return embeddings (n d, of length 1 or 0) without these directions, of length 1 or 0 again."""
    numbers = np.frombuffer(base64.b85decode("".join(_STORED.get(network or "", ""))), np.int8)
    if numbers.size != _COUNT * vectors.shape[1]:
        return vectors
    directions = np.linalg.qr(numbers.reshape(_COUNT, -1).T.astype(np.float64))[0]
    rest = vectors - (vectors @ directions) @ directions.T
    lengths = np.linalg.norm(rest, axis=1, keepdims=True)
    return (rest / np.where(lengths > 0, lengths, 1)).astype(np.float32)
