/* Arrays, textures and surfaces: the runtime's channel descriptions are the driver's formats. */
#include "runtime.h"

#include <string.h>

enum {
	TEXTURE_READ_AS_INTEGER = 1,
	TEXTURE_NORMALIZED_COORDINATES = 2,
	TEXTURE_SRGB = 16,
	TEXTURE_NO_TRILINEAR = 32,
	TEXTURE_SEAMLESS = 64,
	READ_NORMALIZED_FLOAT = 1, /* cudaReadModeNormalizedFloat */
};

static const struct {
	unsigned format;
	enum cudaChannelFormatKind kind;
	int bits;
} formats[] = {
	{CU_AD_FORMAT_UNSIGNED_INT8, cudaChannelFormatKindUnsigned, 8},
	{CU_AD_FORMAT_UNSIGNED_INT16, cudaChannelFormatKindUnsigned, 16},
	{CU_AD_FORMAT_UNSIGNED_INT32, cudaChannelFormatKindUnsigned, 32},
	{CU_AD_FORMAT_SIGNED_INT8, cudaChannelFormatKindSigned, 8},
	{CU_AD_FORMAT_SIGNED_INT16, cudaChannelFormatKindSigned, 16},
	{CU_AD_FORMAT_SIGNED_INT32, cudaChannelFormatKindSigned, 32},
	{CU_AD_FORMAT_HALF, cudaChannelFormatKindFloat, 16},
	{CU_AD_FORMAT_FLOAT, cudaChannelFormatKindFloat, 32},
};

struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
						   enum cudaChannelFormatKind f)
{
	return (struct cudaChannelFormatDesc){x, y, z, w, f};
}

static int format_of(const struct cudaChannelFormatDesc *channels, unsigned *ret_format,
		     unsigned *ret_count)
{
	const int bits[] = {channels->x, channels->y, channels->z, channels->w};
	unsigned count = 0;

	while (count < 4 && bits[count])
		count++;
	for (unsigned i = 0; i < 4; i++) {
		if (bits[i] != (i < count ? bits[0] : 0))
			return cudaErrorInvalidChannelDescriptor;
	}
	for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
		if (formats[i].kind == channels->f && formats[i].bits == bits[0] && count != 3) {
			*ret_format = formats[i].format;
			*ret_count = count;
			return cudaSuccess;
		}
	}
	return cudaErrorInvalidChannelDescriptor;
}

static int describe(const struct cudaChannelFormatDesc *channels, struct cudaExtent extent,
		    unsigned flags, CUDA_ARRAY3D_DESCRIPTOR *ret_array)
{
	*ret_array = (CUDA_ARRAY3D_DESCRIPTOR){
		.Width = extent.width,
		.Height = extent.height,
		.Depth = extent.depth,
		.Flags = flags,
	};
	if (!channels)
		return cudaErrorInvalidValue;
	return format_of(channels, &ret_array->Format, &ret_array->NumChannels);
}

int rt_array(cudaArray_t *ret_array, const struct cudaChannelFormatDesc *channels,
	     struct cudaExtent extent, unsigned flags)
{
	CUDA_ARRAY3D_DESCRIPTOR array;
	int error = describe(channels, extent, flags, &array);

	return error ? error : (int)cu.cuArray3DCreate_v2((void *)ret_array, &array);
}

int rt_mipmapped(cudaMipmappedArray_t *ret_array, const struct cudaChannelFormatDesc *channels,
		 struct cudaExtent extent, unsigned levels, unsigned flags)
{
	CUDA_ARRAY3D_DESCRIPTOR array;
	int error = describe(channels, extent, flags, &array);

	return error ? error : (int)cu.cuMipmappedArrayCreate((void *)ret_array, &array, levels);
}

int rt_array_info(struct cudaChannelFormatDesc *ret_channels, struct cudaExtent *ret_extent,
		  unsigned *ret_flags, const void *array)
{
	CUDA_ARRAY3D_DESCRIPTOR found;
	int error = (int)cu.cuArray3DGetDescriptor_v2(&found, (CUarray)array);
	size_t i = 0;

	if (error)
		return error;
	while (i < sizeof formats / sizeof formats[0] && formats[i].format != found.Format)
		i++;
	if (i == sizeof formats / sizeof formats[0])
		return cudaErrorNotSupported;
	int bits[4] = {0};
	for (unsigned channel = 0; channel < found.NumChannels && channel < 4; channel++)
		bits[channel] = formats[i].bits;
	if (ret_channels)
		*ret_channels = (struct cudaChannelFormatDesc){bits[0], bits[1], bits[2], bits[3],
							       formats[i].kind};
	if (ret_extent)
		*ret_extent = (struct cudaExtent){found.Width, found.Height, found.Depth};
	if (ret_flags)
		*ret_flags = found.Flags;
	return cudaSuccess;
}

/* The driver's union for memory: the address, format and channels, then up to three sizes. */
static int resource_driver(const struct cudaResourceDesc *resource, CUDA_RESOURCE_DESC *ret_driver)
{
	unsigned format[2];

	memset(ret_driver, 0, sizeof *ret_driver);
	if (!resource)
		return cudaErrorInvalidValue;
	ret_driver->resType = resource->resType;
	ret_driver->flags = resource->flags;
	ret_driver->resource[0] = resource->res.object;
	if (resource->resType == cudaResourceTypeArray ||
	    resource->resType == cudaResourceTypeMipmappedArray)
		return cudaSuccess;
	int error = format_of(&resource->res.memory.desc, &format[0], &format[1]);
	if (error)
		return error;
	memcpy(&ret_driver->resource[1], format, sizeof format);
	memcpy(&ret_driver->resource[2], resource->res.memory.sizes,
	       sizeof resource->res.memory.sizes);
	return cudaSuccess;
}

static CUDA_TEXTURE_DESC texture_driver(const struct cudaTextureDesc *texture)
{
	CUDA_TEXTURE_DESC driver = {{0}, {0}};
	unsigned flags = 0;

	if (texture->readMode != READ_NORMALIZED_FLOAT)
		flags |= TEXTURE_READ_AS_INTEGER;
	if (texture->normalizedCoords)
		flags |= TEXTURE_NORMALIZED_COORDINATES;
	if (texture->sRGB)
		flags |= TEXTURE_SRGB;
	if (texture->disableTrilinearOptimization)
		flags |= TEXTURE_NO_TRILINEAR;
	if (texture->seamlessCubemap)
		flags |= TEXTURE_SEAMLESS;
	for (unsigned i = 0; i < 3; i++)
		driver.modes[i] = texture->addressMode[i];
	driver.modes[3] = texture->filterMode;
	driver.modes[4] = flags;
	driver.modes[5] = texture->maxAnisotropy;
	driver.rest[0] = texture->mipmapFilterMode;
	memcpy(&driver.rest[1], &texture->mipmapLevelBias, sizeof(float));
	memcpy(&driver.rest[2], &texture->minMipmapLevelClamp, sizeof(float));
	memcpy(&driver.rest[3], &texture->maxMipmapLevelClamp, sizeof(float));
	memcpy(&driver.rest[4], texture->borderColor, sizeof texture->borderColor);
	return driver;
}

int rt_texture(cudaTextureObject_t *ret_texture, const struct cudaResourceDesc *resource,
	       const struct cudaTextureDesc *description, const CUDA_RESOURCE_VIEW_DESC *view)
{
	CUDA_RESOURCE_DESC driver;
	int error = description ? resource_driver(resource, &driver) : (int)cudaErrorInvalidValue;

	if (error)
		return error;
	CUDA_TEXTURE_DESC texture = texture_driver(description);
	return (int)cu.cuTexObjectCreate(ret_texture, &driver, &texture, view);
}

int rt_surface(cudaSurfaceObject_t *ret_surface, const struct cudaResourceDesc *resource)
{
	CUDA_RESOURCE_DESC driver;
	int error = resource_driver(resource, &driver);

	return error ? error : (int)cu.cuSurfObjectCreate(ret_surface, &driver);
}
